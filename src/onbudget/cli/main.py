"""`onbudget`: one group of verbs, each imported only when it is called, because cold start is a promise."""

from __future__ import annotations

import importlib
import io
import sys

import click
from click.shell_completion import CompletionItem, get_completion_class

from onbudget import __version__
from onbudget.core.errors import OnbudgetError

# verb -> (module, one line of help). The modules are imported when the verb is used, not for `--help`.
VERBS = {
    "demo": ("onbudget.cli.demo", "See it work: serve the embedded model, load it, compare it with the naive way."),
    "export": ("onbudget.cli.export", "A PyTorch module becomes a checked .onnx file."),
    "bundle": ("onbudget.cli.bundle", "An .onnx file and a recipe become one servable bundle."),
    "check": ("onbudget.cli.check", "Read a model's passport and test what it promises."),
    "profile": ("onbudget.cli.profile", "What a run of a model costs on this machine: by batch, threads and lanes."),
    "tune": ("onbudget.cli.tune", "Find the configuration that holds a budget on this machine, and prove it live."),
    "serve": ("onbudget.cli.serve", "Serve a bundle or any .onnx over HTTP with dynamic batching."),
    "load": ("onbudget.cli.load", "An open-loop load test that can't lie."),
    "report": ("onbudget.cli.report", "Load tests as one page: charts, verdicts, cautions; several compared."),
}


_COMPLETE = "_ONBUDGET_COMPLETE"  # how a shell asks what could come next; click's own protocol


class _Verbs(click.Group):
    """A click group that knows its verbs' names and help without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        module = importlib.import_module(VERBS[cmd_name][0])
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in VERBS.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        found = [CompletionItem(name, help=text) for name, (_, text) in VERBS.items() if name.startswith(incomplete)]
        return found + click.Command.shell_complete(self, ctx, incomplete)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in VERBS and not args[0].startswith("-") and not ctx.resilient_parsing:
            import difflib

            near = difflib.get_close_matches(args[0], VERBS, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else f" The verbs are: {', '.join(VERBS)}."
            raise click.UsageError(f"No such verb: {args[0]!r}.{hint}", ctx)
        return super().resolve_command(ctx, args)


def _complete(ctx: click.Context, _: click.Parameter, shell: str | None) -> None:
    if shell is not None and not ctx.resilient_parsing:
        kind = get_completion_class(shell)
        assert kind is not None  # a click.Choice
        click.echo(kind(ctx.command, {}, "onbudget", _COMPLETE).source())
        ctx.exit()


@click.command(
    cls=_Verbs,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="Start with:  onbudget demo",
)
@click.option(
    "--completion",
    type=click.Choice(["bash", "zsh", "fish"]),
    callback=_complete,
    is_eager=True,
    expose_value=False,
    help='Print what completes words in this shell; for bash:  eval "$(onbudget --completion bash)"',
)
@click.version_option(__version__, prog_name="onbudget")
def cli() -> None:
    """Serve ONNX models on the CPUs you have and hold a declared p95 latency budget."""


def main() -> None:
    """The console script: a user's mistake is one sentence and an exit code, never a traceback."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # a pipe on Windows, or LANG=C, may have no form for our ≤ and ×
        sys.stdout.reconfigure(errors="replace")
    try:
        code = cli(standalone_mode=False, complete_var=_COMPLETE)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except click.Abort:
        print("stopped", file=sys.stderr)  # noqa: T201 - the last word to a person who pressed Ctrl-C
        sys.exit(130)
    except OnbudgetError as error:
        print(f"onbudget: {error}", file=sys.stderr)  # noqa: T201 - stderr is where errors go
        sys.exit(error.exit_code)
    sys.exit(code if isinstance(code, int) else 0)
