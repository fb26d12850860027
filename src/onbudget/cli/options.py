"""Structs of options (`core.options`) as click flags: flag > environment (`ONBUDGET_…`) > default."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, get_type_hints

import click

from onbudget.core.errors import UsageError


class Parsed(click.ParamType[Any]):
    """A click type around one of our parsers: its UsageError becomes click's, with the flag's name."""

    def __init__(self, parse: Callable[[str], Any], name: str) -> None:
        self.parse, self.name = parse, name

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return self.parse(value)
        except UsageError as error:
            self.fail(str(error), param, ctx)


def _click_option(name: str, kind: Any, told: dict[str, Any]) -> Callable[[Any], Any]:
    flag = told["flag"] or "--" + name.replace("_", "-")
    extra: dict[str, Any] = {"help": told["help"], "default": told["default"], "envvar": "ONBUDGET_" + name.upper()}
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
    shown = told["default"] not in (None, "", ())
    return click.option(flag, name, metavar=told["metavar"], show_default=shown, **extra)


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
        decorated: Callable[..., Any] = call
        for f in reversed(fields):
            decorated = _click_option(f.name, hints[f.name], f.metadata["option"])(decorated)
        return decorated

    return decorate
