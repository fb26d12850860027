"""Write docs/reference from the code: verbs with their options, settings, errors, HTTP, metrics. `make reference`.

HTTP and metrics are read off a server that really runs, with the embedded bundle. A test renders the same pages and
compares, so that a reference is never out of date.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import re
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import click

from onbudget.cli.config import as_toml
from onbudget.cli.main import VERBS, cli
from onbudget.cli.options import settings
from onbudget.core import errors
from onbudget.engine.embedded import bundle_path
from onbudget.serve.docs import info_of
from onbudget.serve.metrics import SECONDS, SIZES
from onbudget.serve.openapi import document
from onbudget.serve.service import Service
from onbudget.serve.settings import Settings

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


# ---- what a running server says of itself ----


@cache
def served() -> tuple[dict[str, Any], list[Any]]:
    """The OpenAPI document and the metric families of a server that is ready, with a budget and a prediction."""

    async def ask() -> tuple[dict[str, Any], list[Any]]:
        service = Service(bundle_path(), Settings(p95=0.025, lanes=2))
        await service.start()
        service.metrics.live.predicted = 1.0  # this one is told only after traffic
        try:
            return document(info_of(service)), list(service.metrics.collect())
        finally:
            await service.stop()

    return asyncio.run(ask())


def _kind(schema: dict[str, Any]) -> str:
    """A schema's type in a few words: `integer, 1 to 1000`."""
    words = schema.get("type", "")
    kind = " or ".join(words) if isinstance(words, list) else str(words)
    low, high = schema.get("minimum"), schema.get("maximum")
    if "exclusiveMinimum" in schema:
        return f"{kind} above {schema['exclusiveMinimum']}"
    if low is None:
        return kind
    return f"{kind}, {low} to {high}" if high is not None else f"{kind}, from {low}"


def _route(path: str, method: str, one: dict[str, Any]) -> Iterator[str]:
    yield f"## {method.upper()} {path}\n"
    yield f"{one['summary']}.\n"
    if "parameters" in one:
        yield "| parameter | in | type | meaning |\n|---|---|---|---|"
        for got in one["parameters"]:
            yield f"| `{got['name']}` | {got['in']} | {_kind(got['schema'])} | {_cell(got['description'])} |"
        yield ""
    if "requestBody" in one:
        yield "| content type | body |\n|---|---|"
        for kind, body in one["requestBody"]["content"].items():
            yield f"| `{kind}` | {_cell(_BODIES.get(kind) or body['schema']['description'])} |"
        yield ""
    yield "| status | meaning | example |\n|---|---|---|"
    for status, answer in one["responses"].items():
        (content,) = answer["content"].values()
        example = f"`{json.dumps(content['example'])}`" if "example" in content else ""
        yield f"| {status} | {_cell(answer['description'])} | {_cell(example)} |"
    yield ""
    headers = {name: h for answer in one["responses"].values() for name, h in answer.get("headers", {}).items()}
    if headers:
        yield "| header of the answer | meaning |\n|---|---|"
        yield from (f"| `{name}` | {_cell(header['description'])} |" for name, header in headers.items())
        yield ""


_BODIES = {
    "application/json": '`{"tiles": [item, …]}` or `{"instances": [item, …]}`, with `"top": N` if wanted. An item is '
    "base64 of raw bytes, base64 of a picture, nested numbers, or flat ones.",
    "multipart/form-data": "One or many pictures, each a part named `file`.",
}


def http_page() -> str:
    """The routes with their parameters, bodies and answers, as the server's own OpenAPI document has them."""
    told, _ = served()
    parts = [
        MADE,
        "# HTTP\n",
        "What the embedded satellite-tile classifier says of itself at `/openapi.json`; `/docs` is the same as a page. "
        "Of another model the field (`tiles`), the sizes and the answer differ, and a model without a recipe takes no "
        "pictures. [Serve a model](../howto/serve.md#send-items) shows the shapes that requests may have.\n",
        f"{told['info']['description']}\n",
        "Another method than a route's own is 405, another path 404; `GET` routes answer `HEAD` too.\n",
    ]
    for path, methods in told["paths"].items():
        for method, one in methods.items():
            parts += _route(path, method, one)
    parts += ["## What the JSON holds\n", "An item has any of the forms that `Item` lists.\n"]
    for name, schema in told["components"]["schemas"].items():
        parts.append(f"### {name}\n\n```json\n{json.dumps(schema, indent=2, ensure_ascii=False)}\n```\n")
    return "\n".join(parts).rstrip() + "\n"


_TYPES = {"info": "gauge, always 1"}
_VALUES = {
    "outcome": "`ok`; `gone`, the caller hung up; or an [error's code](errors.md)",
    "route": "the path",
    "why": "`full`, `idle` (a lane was free), `deadline` (smaller, for its most urgent item), `wait` (the timer), "
    "`lost` (only given up)",
    "where": "`door`, `queue`",
}


def metrics_page() -> str:
    """Every family with its type, labels and meaning, and the questions that they answer."""
    _, families = served()
    parts = [MADE, "# Metrics\n"]
    parts += [
        "`GET /metrics`, in Prometheus' text format. Beside these there are `process_…` for CPU, memory and open "
        "files, on Linux.\n",
        "| metric | type | labels | meaning |\n|---|---|---|---|",
    ]
    for family in families:
        suffix = {"counter": "_total", "info": "_info"}.get(family.type, "")
        names = family._labelnames or (sorted(family.samples[0].labels) if family.type == "info" else ())
        labels = ", ".join(f"`{name}`" for name in names)
        kind = _TYPES.get(family.type, family.type)
        parts.append(f"| `{family.name}{suffix}` | {kind} | {labels} | {_cell(family.documentation)} |")
    parts += ["", "| label | values |\n|---|---|", *(f"| `{name}` | {text} |" for name, text in _VALUES.items()), ""]
    edges = ", ".join(f"{edge:g}" for edge in SECONDS)
    parts += [
        f"Histograms of seconds have edges at {edges}, and one exactly at the budget; "
        f"`onbudget_batch_size` at {', '.join(f'{edge:g}' for edge in SIZES)}.\n",
        "## Questions\n",
        "The share of requests answered within a budget of 25 ms, refusals and failures counted as misses:\n",
        "```text\n"
        'sum(rate(onbudget_request_seconds_bucket{outcome="ok", le="0.025"}[5m]))\n'
        "/ sum(rate(onbudget_requests_total[5m]))\n"
        "```\n",
        "The share that was refused:\n",
        "```text\n"
        'sum(rate(onbudget_requests_total{outcome="shed"}[5m])) / sum(rate(onbudget_requests_total[5m]))\n'
        "```\n",
        "The mean batch, which says whether batching happens at all:\n",
        "```text\nrate(onbudget_batch_size_sum[5m]) / rate(onbudget_batch_size_count[5m])\n```\n",
    ]
    return "\n".join(parts).rstrip() + "\n"


PAGES: dict[str, Callable[[], str]] = {
    "cli.md": cli_page,
    "config.md": config_page,
    "errors.md": errors_page,
    "http.md": http_page,
    "metrics.md": metrics_page,
}


def main() -> int:
    """Write the pages."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, render in PAGES.items():
        (FOLDER / name).write_text(render())
        print(FOLDER / name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
