"""`onbudget serve`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from onbudget.cli import show
from onbudget.cli.options import Setting, fill_from_plan, options, read_from
from onbudget.core.errors import OnbudgetError
from onbudget.serve.settings import Settings

if TYPE_CHECKING:
    from onbudget.core.plan import Plan
    from onbudget.serve.service import Service


def _say(text: str) -> None:
    click.echo(text, err=True)


def _greet(service: Service, url: str) -> None:
    model, settings = service.model, service.settings
    assert model is not None
    budget = f"p95 budget {settings.p95 * 1000:g} ms, " if settings.p95 else ""
    _say(
        f"{url}  {model.path.name}: {model.lane_count} lane{'s' if model.lane_count > 1 else ''} × {settings.threads} "
        f"thread{'s' if settings.threads > 1 else ''}, max batch {model.policy.max_batch}, {model.policy.name}"
        f"{' inline' if model.inline else ''}, "
        f"{budget}{model.runner.providers[0]}, ready in {model.load_seconds:.2f} s"
    )
    if model.contract.why_alone:
        _say(f"served one at a time: {model.contract.why_alone}")
    for line in _reached_by(settings):
        _say(line)
    if settings.uds:
        _say(f"try: curl --unix-socket {settings.uds} http://localhost/ready    stop: Ctrl-C")
        return
    _say(f"pages: {url}/docs  {url}/health  {url}/ready  {url}/status  {url}/metrics    stop: Ctrl-C")


def _reached_by(settings: Settings) -> list[str]:
    """Who can reach it, where that is more than this machine."""
    from onbudget.serve.access import asked

    keys = asked(settings, os.environ)
    told = ["callers need an API key, but for /health and /ready"] if keys else []
    if settings.uds or settings.host in ("127.0.0.1", "localhost", "::1"):
        return told
    if not keys:
        told.append(f"listening on {settings.host}: other machines can reach it, and there is no authentication")
    elif not settings.tls_cert:
        told.append(f"listening on {settings.host} without TLS: keys and bodies can be read on the way (--tls-cert)")
    return told


def _record(service: Service, url: str) -> None:
    """The same as one record with fields."""
    from onbudget.serve.logs import LOG

    model, settings = service.model, service.settings
    assert model is not None
    facts = {
        "url": url,
        "model": model.path.name,
        "lanes": model.lane_count,
        "threads": settings.threads,
        "max_batch": model.policy.max_batch,
        "policy": model.policy.name,
        "inline": model.inline,
        "p95_ms": settings.p95 * 1000 if settings.p95 else None,
        "provider": model.runner.providers[0],
        "load_seconds": round(model.load_seconds, 3),
        "one_at_a_time": model.contract.why_alone,
    }
    LOG.info("ready", extra=facts)
    for line in _reached_by(settings):
        LOG.info(line)


def _read(ctx: click.Context, _: click.Parameter, path: Path | None) -> tuple[Path, Plan] | None:
    """What the plan decides becomes the default of its options, so that whatever else is said of them still wins."""
    if path is None:
        return None
    from onbudget.engine.plans import read_plan

    plan = read_plan(path)
    # as text: an option's own limits are checked where it is parsed
    told = {name: f"{value}s" if name == "p95" else str(value) for name, value in plan.settings().items()}
    fill_from_plan(ctx, told)
    return path, plan


@click.command(
    "serve",
    epilog="""\b
Examples:
  onbudget serve                                   the embedded satellite-tile bundle on port 8000
  onbudget serve served.onnx --p95 20ms            a bundle, with its budget
  onbudget serve served.onnx --plan plan.json      as a plan says, where nothing else is said
  onbudget serve model.onnx --port 0 --lanes 1     any .onnx as tensors, on a free port
  onbudget serve --host 0.0.0.0 --tls-cert cert.pem --tls-key key.pem --api-key-file keys.txt
  onbudget serve --p95 20ms --print-config         what would be in force, and why; kept, it is an onbudget.toml
""",
)
@click.argument("path", required=False, type=click.Path(path_type=Path))
@options(Settings)
@click.option(
    "--plan",
    cls=Setting,
    type=click.Path(path_type=Path),
    envvar="ONBUDGET_PLAN",
    callback=_read,
    is_eager=True,  # before the options whose defaults it sets
    help="Take budget, lanes, threads, largest batch and policy from this plan, where they are not given.",
)
def command(settings: Settings, path: Path | None, plan: tuple[Path, Plan] | None) -> int:
    """Serve a bundle, or any .onnx as tensors, over HTTP with dynamic batching. Without PATH: the embedded bundle."""
    from onbudget.serve.server import serve

    read = read_from(click.get_current_context())
    if path is None:
        from onbudget.engine.embedded import bundle_path

        path = bundle_path()
    if settings.log_format == "json":
        return _in_json(path, settings, plan, read)
    if read:
        _say(f"settings from {read}")
    for doubt in _doubts(plan, path):
        show.warn(doubt)
    return serve(path, settings, _greet)


def _in_json(path: Path, settings: Settings, plan: tuple[Path, Plan] | None, read: Path | None) -> int:
    """The same with all that is said as records, the error that ends it too."""
    from onbudget.serve.logs import LOG, use_json
    from onbudget.serve.server import serve

    use_json()
    try:
        if read:
            LOG.info("settings read", extra={"file": str(read)})
        for doubt in _doubts(plan, path):
            LOG.warning(doubt)
        return serve(path, settings, _record)
    except OnbudgetError as error:  # as main() does
        LOG.error(str(error), extra={"code": error.code, "exit_code": error.exit_code})
        return error.exit_code


def _doubts(plan: tuple[Path, Plan] | None, model: Path) -> list[str]:
    """What speaks against a plan, made for another machine or so. UsageError where it is another model's."""
    if plan is None:
        return []
    from onbudget.engine.plans import origin

    told = origin(plan[1], plan[0], model)
    return [told] if told else []
