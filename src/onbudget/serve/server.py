"""`onbudget serve`: the front app on uvicorn, with a drain that loses nothing.

On SIGTERM or SIGINT: `/ready` says no (for `drain_notice`, so that balancers notice), the doors close, every accepted
request is answered (within `drain_timeout`), the lanes end, exit 0. A second signal ends the process at once.
"""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import uvicorn

from onbudget.core.errors import UsageError
from onbudget.serve.app import Front
from onbudget.serve.protocol import Protocol
from onbudget.serve.service import Service
from onbudget.serve.settings import Settings


def bind(host: str, port: int) -> socket.socket:
    """A listening socket; UsageError when the address is taken or not ours."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(2048)
    except OSError as error:
        listener.close()
        what = "--port" if error.errno in (errno.EADDRINUSE, errno.EACCES) else "--host"
        raise UsageError(f"can't listen on {host}:{port}: {error.strerror or error}; choose another {what}") from error
    return listener


class _Server(uvicorn.Server):
    """uvicorn's server, with our drain in place of its signal handling."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self._service = service
        self._loop: asyncio.AbstractEventLoop | None = None

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        self._loop = asyncio.get_running_loop()
        signals = (signal.SIGINT, signal.SIGTERM)
        before = {number: signal.signal(number, self.handle_exit) for number in signals}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        assert self._loop is not None
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)  # a second one needs no loop that still turns
        self._loop.call_soon_threadsafe(self._end)

    def _end(self) -> None:
        assert self._loop is not None
        self._service.drain()
        self._loop.call_later(self._service.settings.drain_notice, self._close)

    def _close(self) -> None:
        self._service.close()
        self.should_exit = True


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop where there is one; uvicorn tells it under another name in each of its versions."""
    try:
        import uvloop
    except ImportError:  # Windows
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


def tame() -> None:
    """Take all that loading left behind out of the garbage collector's sight: a full pass over it stops every thread.

    For a process that is a server's own: an application that embeds one decides for itself.
    """
    gc.collect()
    gc.freeze()


def serve(path: Path, settings: Settings, on_ready: Callable[[Service, str], None]) -> int:
    """Serve until a signal comes → exit code 0; `on_ready` is called with the service and its URL once it is warm.

    Raises UsageError when the address can't be had, BundleError or ProviderError when the model can't be served.
    """
    listener = bind(settings.host, settings.port)
    host, port = listener.getsockname()[:2]
    url = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    service = Service(path, settings)
    config = uvicorn.Config(
        Front(service),
        http=type("OneProtocol", (Protocol,), {"service": service}),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=settings.keep_alive,  # type: ignore[arg-type]  # it goes to call_later: parts are fine
        timeout_graceful_shutdown=settings.drain_timeout,  # type: ignore[arg-type]  # and this to wait_for
    )
    server = _Server(config, service)

    async def run() -> None:
        async def told() -> None:
            try:
                await service.start()
                tame()
                if service.state == "ready":  # else it was told to stop meanwhile
                    on_ready(service, url)
            except BaseException:
                server.should_exit = True
                raise

        watcher = asyncio.create_task(told())
        await server.serve(sockets=[listener])
        for connection in list(server.server_state.connections):  # half a request, or an answer that nobody reads
            connection.transport.abort()
        await watcher

    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(run())
    if service.hung:  # a thread that is left inside a run aborts the interpreter on its way out
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
    return 0
