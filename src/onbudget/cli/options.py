"""Structs of options (`core.options`) as click flags: flag > environment (`ONBUDGET_…`) > onbudget.toml > default."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from onbudget.cli.config import NAME, Config, as_text, as_toml, read_config
from onbudget.core.errors import UsageError

_CONFIG = "onbudget.config"  # where the context keeps the file that was read
_FILES = ("FILE", "DIR|BUNDLE")  # what a shell completes as names of files


class Parsed(click.ParamType[Any]):
    """A click type around one of our parsers: its UsageError becomes click's, with the flag's name."""

    envvar_list_splitter = "\n"  # several values in the environment: one a line, since values have spaces

    def __init__(self, parse: Callable[[str], Any], name: str) -> None:
        self.parse, self.name = parse, name

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return self.parse(value)
        except UsageError as error:
            self.fail(str(error), param, ctx)


class Setting(click.Option):
    """An option that may stand in the environment and in onbudget.toml too; it remembers what was typed, and where.

    `kind` says what a file may have there (`config.KINDS`); the value of a `secret` one is never shown.
    """

    def __init__(self, *args: Any, kind: str = "text", secret: bool = False, **extra: Any) -> None:
        super().__init__(*args, **extra)
        self.kind, self.secret, self.told = kind, secret, extra.get("default")

    def consume_value(self, ctx: click.Context, opts: Mapping[str, Any]) -> tuple[Any, ParameterSource]:
        value, source = super().consume_value(ctx, opts)
        ctx.meta[f"onbudget.typed.{self.name}"] = value
        return value, source

    def type_cast_value(self, ctx: click.Context, value: Any) -> Any:
        try:
            return super().type_cast_value(ctx, value)
        except click.BadParameter as error:
            where = self._place(ctx)
            if where is None:
                raise
            raise UsageError(f"{where}: {self.key}: {error.message}") from error

    @property
    def key(self) -> str:
        """Its key in a file, which is its field's name."""
        assert self.name is not None
        return self.name

    def _place(self, ctx: click.Context) -> str | None:
        """`file:line` where its value stands; None where it is not a file's."""
        config: Config | None = ctx.meta.get(_CONFIG)
        if config is None or ctx.get_parameter_source(self.key) is not ParameterSource.DEFAULT_MAP:
            return None
        verb = _verb(ctx)
        return config.where(verb, self.key) if self.key in config.tables.get(verb, {}) else None

    def origin(self, ctx: click.Context) -> str:
        """Where its value came from."""
        source = ctx.get_parameter_source(self.key)
        if source is ParameterSource.COMMANDLINE:
            return "flag"
        if source is ParameterSource.ENVIRONMENT:
            return f"env {self.envvar}"
        if source is ParameterSource.DEFAULT_MAP:
            return self._place(ctx) or "plan"
        return "default"

    def line(self, ctx: click.Context) -> str:
        """`key = value  # origin`; a comment as a whole where there is no value, or it is nobody's to see."""
        origin = self.origin(ctx)
        value = ctx.meta[f"onbudget.typed.{self.key}"] if origin != "default" else self.told
        if self.kind == "bool":
            value = ctx.params[self.key]
        if origin == "default" and value in (None, "", ()):
            return f"# {self.key} is not set"
        if self.secret and value:
            return f"# {self.key} is secret  # {origin}"
        return f"{self.key} = {as_toml(value, self.kind)}  # {origin}"


def _kind(kind: Any, told: Mapping[str, Any]) -> str:
    """The word of `config.KINDS` for a field's type and declaration."""
    plain = {one for one in get_args(kind) if one is not type(None)} if isinstance(kind, types.UnionType) else {kind}
    if plain == {bool}:
        return "bool"
    if told["multiple"]:
        return "list"
    if plain <= {int, float}:
        return "any" if told["parse"] else "whole" if plain == {int} else "number"
    return "commas" if any(get_origin(one) is tuple for one in plain) else "text"


def _files(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(incomplete, type="file")]


def _click_option(name: str, kind: Any, told: dict[str, Any]) -> Callable[[Any], Any]:
    flag = told["flag"] or "--" + name.replace("_", "-")
    extra: dict[str, Any] = {"help": told["help"], "default": told["default"], "envvar": "ONBUDGET_" + name.upper()}
    extra |= {"cls": Setting, "kind": _kind(kind, told), "secret": told["secret"]}
    if kind is bool:
        return click.option(f"{flag}/--no-{flag[2:]}", name, show_default=True, **extra)
    if told["choices"]:
        extra["type"] = click.Choice(told["choices"])
    elif told["parse"]:
        extra["type"] = Parsed(told["parse"], told["metavar"] or "text")
    elif kind in (int, float, str):
        extra["type"] = kind
    if told["multiple"]:
        extra["multiple"] = True
    if told["metavar"] in _FILES:
        extra["shell_complete"] = _files
    shown = told["default"] not in (None, "", ()) and not told["secret"]
    return click.option(flag, name, metavar=told["metavar"], show_default=shown, **extra)


# ---- the file, and what is settled ----------------------------------------------------------------------------------


def _verb(ctx: click.Context) -> str:
    assert ctx.command.name is not None
    return ctx.command.name


def settings(command: click.Command) -> dict[str, Setting]:
    """A verb's options that may stand in a file, by their key, in the order of `--help`."""
    return {param.key: param for param in command.params if isinstance(param, Setting)}


def read_from(ctx: click.Context) -> Path | None:
    """The file that settings were taken from."""
    config: Config | None = ctx.meta.get(_CONFIG)
    return config.path if config is not None and config.tables.get(_verb(ctx)) else None


def fill_from_plan(ctx: click.Context, told: Mapping[str, str]) -> None:
    """Make what a plan decided the defaults of the options; a file, the environment and flags win over it."""
    ctx.default_map = {**told, **(ctx.default_map or {})}


def _read(ctx: click.Context, _: click.Parameter, path: Path | None) -> None:
    """Make the values of a file the defaults of the verb's options."""
    if ctx.resilient_parsing:  # a shell asks what could come next
        return
    if path is None:
        path = Path(NAME)
        if not path.is_file():
            return
    from onbudget.cli.main import VERBS

    config, known, verb = read_config(path), settings(ctx.command), _verb(ctx)
    ctx.meta[_CONFIG] = config
    values = {}
    for key, value in config.table(verb, VERBS, known).items():
        try:
            values[key] = as_text(value, known[key].kind)
        except ValueError as error:
            raise UsageError(f"{config.where(verb, key)}: {key}: {error}") from error
    ctx.default_map = {**(ctx.default_map or {}), **values}


class _Print(click.Option):
    """`--print-config`: settles the options, prints them and ends, before an argument is missed."""

    def handle_parse_result(
        self, ctx: click.Context, opts: Mapping[str, Any], args: list[str]
    ) -> tuple[Any, list[str]]:
        if not opts.get("print_config") or ctx.resilient_parsing:
            return super().handle_parse_result(ctx, opts, args)
        known = settings(ctx.command)
        others = [p for p in ctx.command.params if isinstance(p, click.Option) and p.is_eager and p is not self]
        for param in [*others, *(p for p in known.values() if p not in others)]:  # the eager ones: file, then plan
            param.handle_parse_result(ctx, opts, args)
        config: Config | None = ctx.meta.get(_CONFIG)
        click.echo(f"# onbudget {_verb(ctx)}, read from {config.path}" if config else f"# onbudget {_verb(ctx)}")
        click.echo("\n".join([f"[{_verb(ctx)}]", *(param.line(ctx) for param in known.values())]))
        raise click.exceptions.Exit(0)


def _with_config(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a verb `--config` and `--print-config`."""
    told = "Print every setting as TOML, with where it came from, and end."
    function = click.option("--print-config", cls=_Print, is_flag=True, is_eager=True, expose_value=False, help=told)(
        function
    )
    return click.option(
        "--config",
        type=click.Path(path_type=Path),
        envvar="ONBUDGET_CONFIG",
        callback=_read,
        is_eager=True,  # before the options whose defaults it sets, and before --plan
        expose_value=False,
        help=f"Take what is not given from this file.  [default: {NAME}, where there is one]",
    )(function)


def options(struct: type[Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a click command one flag per field of `struct`; the command is called with the filled struct first."""
    hints = get_type_hints(struct)
    fields = [f for f in dataclasses.fields(struct) if "option" in f.metadata]

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(**given: Any) -> Any:
            chosen = struct(**{f.name: given.pop(f.name) for f in fields})
            return function(chosen, **given)

        call.__doc__ = function.__doc__
        call.__name__ = function.__name__
        # options that the command declared itself, below this decorator
        call.__click_params__ = list(getattr(function, "__click_params__", []))  # type: ignore[attr-defined]
        decorated = _with_config(call)
        for f in reversed(fields):
            decorated = _click_option(f.name, hints[f.name], f.metadata["option"])(decorated)
        return decorated

    return decorate
