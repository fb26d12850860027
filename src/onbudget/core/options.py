"""One declaration per option: a field of a frozen struct, from which flag, environment name and reference are made."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any


def option(
    default: Any,
    help: str,
    *,
    parse: Callable[[str], Any] | None = None,
    metavar: str | None = None,
    choices: Sequence[str] = (),
    multiple: bool = False,
    flag: str | None = None,
    secret: bool = False,
) -> Any:
    """A struct field that is also an option.

    `default` is text where `parse` is given ("20ms"), as a person would type it; it is parsed like one. `flag` is the
    flag's name where it differs from the field's; `multiple` collects a tuple. A bool field becomes `--x/--no-x`. The
    value of a `secret` one is never shown.
    """
    told = {
        "help": help,
        "parse": parse,
        "metavar": metavar,
        "choices": tuple(choices),
        "multiple": multiple,
        "flag": flag,
        "secret": secret,
        "default": default,
    }
    value = parse(default) if parse and isinstance(default, str) else default
    return dataclasses.field(default=value, metadata={"option": told})
