"""`onbudget serve`: the front app on uvicorn, with a drain that loses nothing.

On SIGTERM or SIGINT: `/ready` says no (for `drain_notice`, so that balancers notice), the doors close, every accepted
request is answered (within `drain_timeout`), the lanes end, exit 0. A second signal ends it at once.
"""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import uvicorn

from onbudget.core.errors import OnbudgetError, UsageError
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
        raise UsageError(f"can't listen on {host}:{port}: {error.strerror or error}; choose another --port") from error
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
        self._loop.call_soon_threadsafe(self._end)

    def _end(self) -> None:
        assert self._loop is not None
        if self._service.state in ("draining", "stopped"):
            self.force_exit = self.should_exit = True
            return
        self._service.drain()
        self._loop.call_later(self._service.settings.drain_notice, self._close)

    def _close(self) -> None:
        self.should_exit = True


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
        timeout_keep_alive=int(settings.keep_alive),
        timeout_graceful_shutdown=int(settings.drain_timeout) or None,
    )
    server = _Server(config, service)

    async def run() -> None:
        async def told() -> None:
            try:
                await service.start()
                on_ready(service, url)
            except OnbudgetError:
                server.should_exit = True  # what went wrong is kept in `service.error`

        watcher = asyncio.create_task(told())
        await server.serve(sockets=[listener])
        await watcher

    with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
        runner.run(run())
    if service.error is not None:
        raise service.error
    return 0
