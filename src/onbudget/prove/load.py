"""A load test from its options to its record.

`run_load` is the whole of it, for any thread or process; `run_load_async` is the same inside a running loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import hashlib
import json
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from onbudget import __version__
from onbudget.core.errors import TargetError, UsageError
from onbudget.core.records import Ending, Header, Hits
from onbudget.core.summary import Summary, summarise
from onbudget.prove import batches, payloads
from onbudget.prove.arrivals import Schedule, constant, poisson, trace
from onbudget.prove.client import Target, ask, parse_target, resolve
from onbudget.prove.generator import Generator, Progress
from onbudget.prove.settings import LoadOptions

__all__ = ["LoadOptions", "Progress", "Run", "plan", "run_load", "run_load_async"]

_RATE, _DURATION_S = 100.0, 10.0
_READY_S = 5.0  # how long /ready may take

OnProgress = Callable[[Progress], None]


@dataclass(frozen=True)
class Run:
    """A finished load test: what was asked, what became of each request, and how it ended."""

    header: Header
    hits: Hits
    ending: Ending

    @cached_property
    def _summary(self) -> Summary:
        return summarise(self.header, self.hits, self.ending)

    def summary(self) -> Summary:
        """What it says, judged once."""
        return self._summary


def run_load(options: LoadOptions, on_progress: OnProgress | None = None) -> Run:
    """Run a load test and return its record. Blocks; may be called from any thread that has no running event loop.

    In the main thread Ctrl-C ends the sending, waits a second for what is under way (Ctrl-C again: not at all), and the
    run comes back marked partial. Raises UsageError for options that cannot be meant and TargetError where the server
    cannot be reached or refuses the first request.
    """
    loop = new_loop()
    try:
        return loop.run_until_complete(run_load_async(options, on_progress))
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


async def run_load_async(options: LoadOptions, on_progress: OnProgress | None = None) -> Run:
    """The same in the running loop, which should have nothing else to do. Errors as in `run_load`."""
    options.check()
    target = parse_target(options.url)
    schedule = plan(options)
    address = await resolve(target)
    sent, model = await _payloads(options, target, address)
    await _probe(target, address, sent.requests[0], options.timeout)
    generator = Generator(
        address,
        sent.requests,
        schedule,
        connections=options.connections,
        clients=options.clients,
        timeout_s=options.timeout,
        on_progress=on_progress,
    )
    header = _header(options, target, schedule, sent, model)
    before = await batches.told(target, address, options.headers()) if model is not None else None
    with _interruptible(generator):
        hits, ending = await generator.run()
    if before is not None:
        ran = batches.since(before, await batches.told(target, address, options.headers()))
        ending = dataclasses.replace(ending, batches=ran)
    return Run(header, hits, ending)


def plan(options: LoadOptions) -> Schedule:
    """When requests are due. UsageError for a trace that cannot be read, or for a test in which nobody comes."""
    if options.trace:
        try:
            with Path(options.trace).open(encoding="utf-8") as lines:
                return trace(lines, options.trace, options.duration, options.warmup)
        except OSError as error:
            raise UsageError(f"{options.trace} cannot be read: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise UsageError(f"{options.trace} is not text: one offset in seconds a line is wanted") from error
    rate = _RATE if options.rate is None else options.rate
    duration = _DURATION_S if options.duration is None else options.duration
    if options.arrivals == "constant":
        return constant(rate, duration, options.warmup)
    return poisson(rate, duration, options.warmup, options.seed)


def new_loop() -> asyncio.AbstractEventLoop:
    """The fastest event loop that there is for generating load."""
    try:
        import uvloop
    except ImportError:  # there is none for Windows
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


@contextlib.contextmanager
def _interruptible(generator: Generator) -> Iterator[None]:
    """Ctrl-C stops the generator; an error inside one of its callbacks ends the run instead of being only logged."""
    loop = asyncio.get_running_loop()

    def fail(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        generator.fail(context.get("exception") or RuntimeError(str(context.get("message"))))

    before = loop.get_exception_handler()
    loop.set_exception_handler(fail)
    handled = threading.current_thread() is threading.main_thread()
    theirs = signal.getsignal(signal.SIGINT)
    if handled:
        try:
            loop.add_signal_handler(signal.SIGINT, generator.stop)
        except (NotImplementedError, RuntimeError):  # Windows; Ctrl-C then ends the command without a report
            handled = False
    try:
        yield
    finally:
        loop.set_exception_handler(before)
        if handled:
            loop.remove_signal_handler(signal.SIGINT)
            signal.signal(signal.SIGINT, theirs)


# ---- before the first request ---------------------------------------------------------------------------------------


async def _payloads(
    options: LoadOptions, target: Target, address: tuple[str, int]
) -> tuple[payloads.Payloads, dict[str, Any] | None]:
    """What will be sent, and what the server says of its model.

    A server that does not know /ready may still take what the user gives.
    """
    given = bool(options.body or options.data)
    try:
        answer = await ask(target, address, payloads.ready_request(target, options.headers()), _READY_S)
        model = payloads.model_told(answer, target)
    except TargetError:
        if not given:
            raise
        model = None
    return _build(options, target, model), model


def _build(options: LoadOptions, target: Target, model: dict[str, Any] | None) -> payloads.Payloads:
    form: Any = options.format  # one of payloads.Format: the option has its choices
    shape = payloads.shape_of(model, options.field or None)
    data = Path(options.data)
    if options.body:
        items, source = payloads.from_file(Path(options.body), options.content_type or None), options.body
    elif options.data and data.is_dir():
        items, source = payloads.from_pictures(data, form, shape), options.data
    elif options.data and data.suffix == ".onnx":
        items, source = payloads.from_bundle(data, form, options.field or None), options.data
    elif options.data:
        what = "is neither a folder of pictures nor a bundle (.onnx)" if data.exists() else "does not exist"
        raise UsageError(f"--data {options.data} {what}")
    elif shape is None:
        raise payloads.no_items(target, model)
    else:
        items, source = payloads.random_items(form, shape, options.seed), "random items of the model's shape"
    return payloads.assemble(items, target, options.headers(), source)


async def _probe(target: Target, address: tuple[str, int], request: bytes, timeout_s: float) -> None:
    """One request before all others: a server that does not take it would fail every one. TargetError with its words.

    Being refused (429) is an answer: a test of a server under load may go on.
    """
    answer = await ask(target, address, request, timeout_s)
    if 200 <= answer.status < 300 or answer.status == 429:
        return
    hint = "; is the path right?" if answer.status in (404, 405) else ""
    raise TargetError(f"{target.url} answers {answer.status} to the first request: {answer.detail()}{hint}")


def _header(
    options: LoadOptions,
    target: Target,
    schedule: Schedule,
    sent: payloads.Payloads,
    model: dict[str, Any] | None,
) -> Header:
    from onbudget.engine.machine import facts

    header = Header(
        command=options.command_line(),
        target=target.url,
        arrivals=schedule.kind,
        rate=schedule.rate,
        seed=schedule.seed,
        warmup_s=schedule.warmup_s,
        duration_s=schedule.duration_s,
        timeout_s=options.timeout,
        connections=options.connections,
        clients=options.clients,
        p95_s=options.p95,
        payload={"format": "as it is" if options.body else options.format, **sent.facts()},
        model=model,
        machine=facts(),
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        made_by=f"onbudget {__version__}",
    )
    return dataclasses.replace(header, hash=_hash(header, schedule))


def _hash(header: Header, schedule: Schedule) -> str:
    """16 hex digits of what a repetition must share: moments, bodies, limits and the model, but not the place."""
    told = dataclasses.asdict(header)
    same = {key: told[key] for key in ("warmup_s", "duration_s", "timeout_s", "connections", "p95_s")}
    if header.clients:  # else a hash of before there were any would not be the same
        same["clients"] = header.clients
    same["bodies"] = header.payload.get("sha256")
    same["model"] = (header.model or {}).get("sha256")
    digest = hashlib.sha256(json.dumps(same, sort_keys=True).encode())
    digest.update(schedule.offsets.tobytes())
    return digest.hexdigest()[:16]
