"""Listening sockets: an address, or a path in the file system."""

from __future__ import annotations

import errno
import os
import socket
import stat
from pathlib import Path

from onbudget.core.errors import UsageError
from onbudget.serve.settings import Settings

BACKLOG = 2048
MODE = 0o660  # of a Unix socket: its owner and group may connect


def bind(host: str, port: int) -> socket.socket:
    """A listening socket; UsageError when the address is taken or not ours."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        what = "--port" if error.errno in (errno.EADDRINUSE, errno.EACCES) else "--host"
        raise UsageError(f"can't listen on {host}:{port}: {error.strerror or error}; choose another {what}") from error
    return listener


def bind_unix(path: Path) -> socket.socket:
    """A listening Unix socket, open to owner and group, in the place of one that nobody listens on any more.

    UsageError where somebody listens there, where something else than a socket lies there, or for a path that can't be.
    """
    if not hasattr(socket, "AF_UNIX"):
        raise UsageError("--uds: this system has no Unix sockets; use --host and --port")
    _make_room(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o777 & ~MODE)  # not a chmod afterwards: between the two everybody could connect
    try:
        listener.bind(str(path))
        listener.listen(BACKLOG)
    except OSError as error:  # strerror is missing where Python itself finds the path too long
        listener.close()
        raise UsageError(f"--uds {path}: can't listen there: {error.strerror or error}") from error
    finally:
        os.umask(before)
    return listener


def _make_room(path: Path) -> None:
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    except OSError as error:
        raise UsageError(f"--uds {path}: {error.strerror}") from error
    if not stat.S_ISSOCK(found.st_mode):
        raise UsageError(f"--uds {path} exists and is not a socket; it is left as it is, so choose another path")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:  # a server that was killed leaves its socket behind
            try:
                path.unlink()
            except OSError as error:
                raise UsageError(f"--uds {path}: the stale socket can't be replaced: {error.strerror}") from error
            return
        except (BlockingIOError, TimeoutError):
            pass  # a server that is too busy to let us in is one
        except OSError as error:
            raise UsageError(f"--uds {path}: a socket is there that can't be asked: {error.strerror}") from error
    raise UsageError(f"--uds {path}: another server listens there; stop it or choose another path")


class Listener:
    """Where a server listens. `socket` is open until `close`; `url` is the address as a person would type it."""

    def __init__(self, settings: Settings) -> None:
        self._path: Path | None = None
        scheme = "https" if settings.tls_cert else "http"
        if settings.uds:
            self._path = Path(settings.uds).absolute()
            self.socket = bind_unix(self._path)
            found = self._path.lstat()
            self._made = (found.st_dev, found.st_ino)
            self.url = f"{scheme}+unix://{self._path}"
            return
        self.socket = bind(settings.host, settings.port)
        host, port = self.socket.getsockname()[:2]
        self.url = f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"

    def close(self) -> None:
        """Stop listening, and take a Unix socket away, unless another server has put its own there meanwhile."""
        self.socket.close()
        if self._path is None:
            return
        try:
            found = self._path.lstat()
            if (found.st_dev, found.st_ino) == self._made:
                self._path.unlink()
        except FileNotFoundError:
            pass
