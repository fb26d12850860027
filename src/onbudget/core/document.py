"""What records of one JSON document share: how they are opened, and how two machines are told apart.

Each kind of record has its schema, which grows only when an old reader would misunderstand a new file: a reader refuses
a newer schema by name, reads every older one, and ignores keys that it does not know.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from onbudget.core.errors import RecordError

# The facts that a machine's hash is made of, by their names in a record.
_COSTLY = ("cpu", "arch", "isa", "affinity", "quota", "governor", "onnxruntime")


def opened(text: str | bytes, name: str, *, kind: str, schema: int, again: str) -> dict[str, Any]:
    """The document of this kind in file `name`; `again` is how another is made with this version.

    RecordError for what is not JSON, for another kind, and for a schema above `schema`.
    """
    try:
        told = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{name} is not a {kind}: not JSON: {error}") from error
    if not isinstance(told, dict) or told.get("kind") != kind:
        raise RecordError(f'{name} is not a {kind}: it has no "kind": "{kind}"')
    found = told.get("schema")
    if not isinstance(found, int) or isinstance(found, bool) or found < 1:
        raise RecordError(f"{name} is damaged: schema must be a whole number, not {found!r}")
    if found > schema:
        maker = told.get("made_by") or "a newer onbudget"
        raise RecordError(
            f"{name} has {kind} schema {found}, written by {maker}; this onbudget reads schemas up to {schema}. "
            f"Install a newer onbudget, or {again} with this one"
        )
    return told


def differences(there: Mapping[str, Any], here: Mapping[str, Any]) -> str:
    """How two machines' facts differ where cost depends on them: `quota none there, 1.5 here`; empty for the same."""
    if there["hash"] == here["hash"]:
        return ""
    differ = [n for n in _COSTLY if there.get(n) != here.get(n)]
    told = "; ".join(f"{n} {_plain(there.get(n))} there, {_plain(here.get(n))} here" for n in differ)
    return told or "its facts differ"


def _plain(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else "none" if value is None else str(value)
