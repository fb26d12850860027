"""Write docs/reference from the code: verbs with their options, settings, the tree of errors. `make reference`.

A test renders the same pages and compares, so that a reference is never out of date.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click

from onbudget.cli.config import as_toml
from onbudget.cli.main import VERBS, cli
from onbudget.cli.options import settings
from onbudget.core import errors

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "reference"
MADE = "<!-- Written by scripts/make_reference.py (`make reference`); do not edit. -->\n"
EXIT_CODES = {
    0: "it worked",
    1: "it failed; the message says what, where and what to do next",
    2: "the command cannot be meant: a wrong flag, setting or file name",
    10: "a measurement is sound, and the budget was missed",
    11: "a measurement cannot be believed, or could not decide",
    12: "a gate failed: parity, fusing or accuracy is outside its tolerance",
    13: "not feasible; the message names the nearest that is",
    130: "stopped by Ctrl-C",
}


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _default(option: click.Option) -> str:
    value = option.default
    if option.required:
        return "required"
    if option.is_flag and option.secondary_opts:
        return f"`{(option.opts if value else option.secondary_opts)[0]}`"
    if option.is_flag or value is None or value in ("", ()) or type(value).__name__ == "Sentinel":
        return ""
    return f"`{' '.join(map(str, value)) if isinstance(value, tuple | list) else value}`"


def _flags(option: click.Option, ctx: click.Context) -> str:
    names = ", ".join(option.opts) + "".join(f" / {name}" for name in option.secondary_opts)
    return f"`{names}`" if option.is_flag else f"`{names} {_cell(option.make_metavar(ctx))}`"


def _verb(name: str, command: click.Command) -> Iterator[str]:
    ctx = click.Context(command, info_name=f"onbudget {name}")
    yield f"## onbudget {name}\n"
    yield inspect.cleandoc(command.help or "") + "\n"
    yield f"```text\nonbudget {name} {' '.join(command.collect_usage_pieces(ctx))}\n```\n"
    yield from _options(command, ctx)
    if command.epilog:
        yield from _epilog(inspect.cleandoc(command.epilog))


def _options(command: click.Command, ctx: click.Context) -> Iterator[str]:
    yield "| option | default | environment | what it does |\n|---|---|---|---|"
    for option in command.params:
        if isinstance(option, click.Option):
            environment = f"`{option.envvar}`" if option.envvar else ""
            yield f"| {_flags(option, ctx)} | {_default(option)} | {environment} | {_cell(option.help or '')} |"
    yield ""


def _epilog(text: str) -> Iterator[str]:
    """Paragraphs; one that begins with click's `\\b` is kept as it is typed, and is a list of examples."""
    for paragraph in re.split(r"\n\s*\n", text.strip()):
        if not paragraph.startswith("\b"):
            yield " ".join(paragraph.split()) + "\n"
            continue
        title, _, lines = paragraph.removeprefix("\b").strip("\n").partition("\n")
        yield f"{title.strip()}\n\n```text\n{inspect.cleandoc(lines)}\n```\n"


def cli_page() -> str:
    """Every verb: what it does, its options with default and environment name, its examples."""
    ctx = click.Context(cli, info_name="onbudget")
    parts = [
        MADE,
        "# Commands\n",
        "A flag wins over its environment variable, which wins over [onbudget.toml](config.md) and the default.\n",
    ]
    parts += ["| exit code | meaning |\n|---|---|", *(f"| {code} | {what} |" for code, what in EXIT_CODES.items()), ""]
    parts += ["## onbudget\n", *_options(cli, ctx)]
    for name in VERBS:
        command = cli.get_command(ctx, name)
        assert command is not None, name
        parts += _verb(name, command)
    return "\n".join(parts).rstrip() + "\n"


TAKES = {  # what a file may have, by an option's kind
    "bool": "`true` or `false`",
    "text": "text",
    "whole": "whole number",
    "number": "number",
    "any": "number or text",
    "list": "list of texts",
    "commas": "text or list",
}


def config_page() -> str:
    """Every key of onbudget.toml: its flag, its environment name, what it takes, its default and its meaning."""
    ctx = click.Context(cli, info_name="onbudget")
    parts = [MADE, "# Settings\n"]
    parts += [
        "What may stand in `onbudget.toml`, one table a command; [how to configure](../howto/configure.md) says how it "
        "is found and who wins. Text is in quotes, as after the flag; `onbudget COMMAND --print-config` prints what is "
        "in force.\n"
    ]
    for name in VERBS:
        command = cli.get_command(ctx, name)
        assert command is not None, name
        verb = click.Context(command, info_name=name)
        parts += [
            f"## [{name}]\n",
            "| key | flag | environment | in a file | default | meaning |\n|---|---|---|---|---|---|",
        ]
        for key, option in settings(command).items():
            meaning = _cell(option.help or "") + (" Never printed." if option.secret else "")
            default = "" if option.told in (None, "", ()) else f"`{as_toml(option.told, option.kind)}`"
            names = (f"`{key}`", _flags(option, verb), f"`{option.envvar}`")
            takes = "text" if option.metavar in ("DURATION", "RATE") else TAKES[option.kind]  # a unit is needed
            cells = (*names, takes, default, meaning)
            parts.append(f"| {' | '.join(cells)} |")
        parts.append("")
    return "\n".join(parts).rstrip() + "\n"


def classes(top: type[errors.OnbudgetError] = errors.OnbudgetError) -> Iterator[type[errors.OnbudgetError]]:
    """The error classes of core.errors, in the order in which they are written."""
    yield top
    for sub in top.__subclasses__():
        if sub.__module__ == errors.__name__:  # a room may have a private one below
            yield from classes(sub)


def errors_page() -> str:
    """The tree as core.errors draws it, then each class with its code, status or exit code, and meaning."""
    drawn = inspect.cleandoc(errors.__doc__ or "").split("\n\n")[1]
    parts = [MADE, "# Errors\n", f"```text\n{inspect.cleandoc(drawn)}\n```\n"]
    parts += ["| class | code | HTTP status | exit code | meaning |\n|---|---|---|---|---|"]
    for one in classes():
        status = str(one.status) if issubclass(one, errors.RequestError) else ""
        exits = "" if status else str(one.exit_code)
        meaning = _cell((one.__doc__ or "").split("\n\n")[0])
        parts.append(f"| `{one.__name__}` | `{one.code}` | {status} | {exits} | {meaning} |")
    return "\n".join(parts) + "\n"


PAGES: dict[str, Callable[[], str]] = {"cli.md": cli_page, "config.md": config_page, "errors.md": errors_page}


def main() -> int:
    """Write the pages."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, render in PAGES.items():
        (FOLDER / name).write_text(render())
        print(FOLDER / name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
