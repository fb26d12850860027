"""`onbudget.toml`: one table a verb, whose keys are the verb's options.

Its values become the defaults of the verb's options, so that flags and the environment win over them. They are handed
on as text, as a person would type them: an option's own limits are checked where it is parsed, wherever it came from.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from onbudget.core.errors import UsageError

NAME = "onbudget.toml"
LARGEST = 32 * 1024  # bytes; it is read whole, and again line by line when there is something to say about a line


@dataclass(frozen=True, slots=True)
class Config:
    """One file: its path, its text, and its tables."""

    path: Path
    text: str = field(repr=False)
    tables: Mapping[str, Any] = field(repr=False)

    def where(self, *keys: str) -> str:
        """`file:line` of a key, which is named by the table and the name in it."""
        return f"{self.path}:{line_of(self.text, keys)}"

    def table(self, verb: str, verbs: Collection[str], known: Collection[str]) -> dict[str, Any]:
        """A verb's values, each key of them known. UsageError for another key, or for a table of no verb."""
        for name, value in self.tables.items():
            if not isinstance(value, dict):
                where = f"put it under [{verb}]" if name in known else f"the tables are {_listed(verbs)}"
                raise UsageError(f"{self.where(name)}: {name} stands outside of a table; {where}")
            if name not in verbs:
                raise UsageError(f"{self.where(name)}: no such table: [{name}].{_nearest(name, verbs, '[{}]')}")
        found: dict[str, Any] = self.tables.get(verb, {})
        for name in found:
            if name not in known:
                raise UsageError(f"{self.where(verb, name)}: no such key in [{verb}]: {name}.{_nearest(name, known)}")
        return found


def read_config(path: Path) -> Config:
    """Read a file. UsageError where there is none, it is no TOML, or it is too large to be meant."""
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST + 1)
        text = data.decode().replace("\r\n", "\n")
        if len(data) > LARGEST:
            raise UsageError(f"{path} is larger than {LARGEST // 1024} KiB; is it a file of settings?")
        return Config(path, text, tomllib.loads(text))
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not TOML: it is not UTF-8 at byte {error.start}") from error
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path} is not TOML: {error}") from error


def line_of(text: str, keys: tuple[str, ...]) -> int:
    """The line on which the value under `keys` begins, from 1; 1 where there is none.

    tomllib tells no lines, so the shortest beginning that has the key is looked for; a value of several lines begins
    after the last beginning that could be read without it.
    """
    lines = text.split("\n")
    begin = 0
    for end in range(1, len(lines) + 1):
        try:
            found: Any = tomllib.loads("\n".join(lines[:end]))
        except tomllib.TOMLDecodeError:
            continue  # in the middle of a value
        for key in keys:
            found = found.get(key) if isinstance(found, dict) else None
        if found is not None:
            return begin + 1
        begin = end
    return 1


# what an option takes in a file -> in words
KINDS = {
    "bool": "true or false",
    "text": "text in quotes",
    "whole": "a whole number",
    "number": "a number",
    "any": "a number, or text in quotes",
    "list": "a list of texts in quotes",
    "commas": "text in quotes, or a list",
}


def as_text(value: Any, kind: str) -> Any:
    """A TOML value as what click takes: text, a bool or a list of texts. ValueError, saying what it must be, else."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    number = whole or isinstance(value, float)
    if kind == "bool" and isinstance(value, bool):
        return value
    if kind == "list" and isinstance(value, list) and all(isinstance(one, str) for one in value):
        return value
    if kind == "commas" and isinstance(value, list) and all(type(one) in (str, int) for one in value):
        return ",".join(map(str, value))
    if kind in ("text", "commas", "any") and isinstance(value, str):
        return value
    if (kind == "whole" and whole) or (kind in ("number", "any", "commas") and number):
        return repr(value)
    raise ValueError(f"it must be {KINDS[kind]}, not {_told(value)}")


def as_toml(value: Any, kind: str) -> str:
    """The reverse of `as_text`, for text that an option took."""
    if kind == "bool":
        return "true" if value else "false"
    if kind == "list":
        return f"[{', '.join(map(_quoted, value))}]"
    text = str(value).strip()
    if kind == "whole" or (kind == "any" and text.isascii() and text.isdigit()):
        return repr(int(text))
    return repr(float(text)) if kind == "number" else _quoted(str(value))


def _quoted(text: str) -> str:
    """A basic string. JSON's escapes are TOML's, but for one character that JSON leaves as it is."""
    import json

    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _told(value: Any) -> str:
    names = {bool: "true or false", str: "text", list: "a list", dict: "a table", int: "a number", float: "a number"}
    return f"{names.get(type(value), type(value).__name__)} ({str(value)[:60]})"


def _listed(names: Collection[str], form: str = "[{}]") -> str:
    return ", ".join(form.format(name) for name in names)


def _nearest(name: str, known: Collection[str], form: str = "{}") -> str:
    near = difflib.get_close_matches(name.replace("-", "_").lower(), known, n=1)
    return f" Did you mean {form.format(near[0])}?" if near else f" There are {_listed(known, form)}."
