"""`onbudget serve`: the front app on uvicorn, with a drain that loses nothing.

On SIGHUP: API keys and the TLS certificate are read again; connections that are open stay.
On SIGTERM or SIGINT: `/ready` says no (for `drain_notice`, so that balancers notice), the doors close, every accepted
request is answered (within `drain_timeout`), the lanes end, exit 0. A second signal ends the process at once.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn

from onbudget.core.errors import UsageError
from onbudget.serve.access import access
from onbudget.serve.app import Front
from onbudget.serve.cors import Origins
from onbudget.serve.door import Door
from onbudget.serve.guarded import Guarded
from onbudget.serve.listen import BACKLOG, Listener
from onbudget.serve.protocol import Protocol
from onbudget.serve.service import Service
from onbudget.serve.settings import Settings
from onbudget.serve.tls import tls

log = logging.getLogger("onbudget")
GOODBYE = 2.0  # seconds that a TLS connection may take to say that it ends, what is still to be sent included


class _Server(uvicorn.Server):
    """uvicorn's server, with our drain in place of its signal handling."""

    def __init__(self, config: uvicorn.Config, service: Service, reload: Sequence[Callable[[], object]]) -> None:
        super().__init__(config)
        self._service = service
        self._reload = reload  # what SIGHUP reads again
        self._loop: asyncio.AbstractEventLoop | None = None

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        self._loop = asyncio.get_running_loop()
        signals = (signal.SIGINT, signal.SIGTERM)
        before = {number: signal.signal(number, self.handle_exit) for number in signals}
        if self._reload and hasattr(signal, "SIGHUP"):
            before[signal.SIGHUP] = signal.signal(signal.SIGHUP, self._handle_reload)
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

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """uvicorn's, but that TLS gets times of ours: it would wait a minute for a handshake, and half a one for a
        goodbye that a client in a pool of idle connections never says.
        """
        config = self.config
        if config.ssl is None:
            await super().startup(sockets)
            return
        await super().startup([])
        kind: Any = config.http_protocol_class  # a class, now that it is loaded
        make = partial(kind, config, self.server_state, self.lifespan.state)
        for one in sockets or []:
            server = await asyncio.get_running_loop().create_server(
                make,
                sock=one,
                ssl=config.ssl,
                backlog=BACKLOG,
                ssl_handshake_timeout=self._service.settings.client_timeout,
                ssl_shutdown_timeout=GOODBYE,
            )
            self.servers.append(server)

    def _handle_reload(self, sig: int, frame: FrameType | None) -> None:
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._read_again)

    def _read_again(self) -> None:
        for load in self._reload:
            try:
                load()
            except UsageError as error:
                log.warning("SIGHUP: what was read before stays, because %s", error)
            else:
                log.info("SIGHUP: read again")

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

    Raises UsageError when the address can't be had or when files of keys or certificates can't be used, BundleError or
    ProviderError when the model can't be served.
    """
    secure, keys = tls(settings, os.environ), access(settings, os.environ)
    origins = Origins(settings.cors_origin) if settings.cors_origin else None
    listener = Listener(settings)
    service = Service(path, settings)
    app: Any = Front(service)
    kind = type("OneProtocol", (Protocol,), {"service": service})
    if keys is not None or origins is not None:
        app = Door(app, service, keys, origins)
        kind = type("OneProtocol", (Guarded,), {"service": service, "access": keys, "origins": origins})
    config = uvicorn.Config(
        app,
        http=kind,
        root_path=settings.root_path,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=settings.keep_alive,  # type: ignore[arg-type]  # it goes to call_later: parts are fine
        timeout_graceful_shutdown=settings.drain_timeout,  # type: ignore[arg-type]  # and this to wait_for
    )
    config.load()
    if secure is not None:
        config.ssl = secure.context
    server = _Server(config, service, [one.load for one in (keys, secure) if one is not None])

    async def run() -> None:
        async def told() -> None:
            try:
                await service.start()
                tame()
                if service.state == "ready":  # else it was told to stop meanwhile
                    on_ready(service, listener.url)
            except BaseException:
                server.should_exit = True
                raise

        watcher = asyncio.create_task(told())
        await server.serve(sockets=[listener.socket])
        for connection in list(server.server_state.connections):  # half a request, or an answer that nobody reads
            connection.transport.abort()
        await watcher

    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(run())
    finally:
        listener.close()
    if service.hung:  # a thread that is left inside a run aborts the interpreter on its way out
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
    return 0
