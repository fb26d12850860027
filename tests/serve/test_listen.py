"""Unix sockets: who may connect, what is replaced, and what is left alone."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest

from onbudget.core.errors import UsageError
from onbudget.serve.listen import Listener, bind_unix
from onbudget.serve.settings import Settings


def connect(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(5)
        client.connect(str(path))


def test_owner_and_group_may_connect_and_others_may_not(tmp_path: Path) -> None:
    """Mode 0660 whatever the process's umask is, which stays as it was."""
    path = tmp_path / "server.sock"
    before = os.umask(0o002)
    try:
        with bind_unix(path):
            found = path.lstat().st_mode
            assert stat.S_ISSOCK(found)
            assert stat.S_IMODE(found) == 0o660
            connect(path)
        assert os.umask(0o002) == 0o002
    finally:
        os.umask(before)


def test_a_stale_socket_is_replaced(tmp_path: Path) -> None:
    """A server that was killed leaves its socket behind; the next one listens in its place."""
    path = tmp_path / "server.sock"
    bind_unix(path).close()
    assert path.is_socket()
    with bind_unix(path):
        connect(path)


def test_a_socket_in_use_is_an_error_and_stays_in_use(tmp_path: Path) -> None:
    """Also where its server is so busy that nobody is let in."""
    path = tmp_path / "server.sock"
    with bind_unix(path):
        with pytest.raises(UsageError, match="another server listens there"):
            bind_unix(path)
        connect(path)
    full = tmp_path / "full.sock"
    with socket.socket(socket.AF_UNIX) as busy, socket.socket(socket.AF_UNIX) as first:
        busy.bind(str(full))
        busy.listen(0)
        first.connect(str(full))
        with pytest.raises(UsageError, match="another server listens there"):
            bind_unix(full)


@pytest.mark.parametrize("kind", ["file", "folder", "link"])
def test_nothing_else_is_ever_deleted(tmp_path: Path, kind: str) -> None:
    """A file, a folder, a link to a stale socket: an error that says so, and they stay."""
    path, target = tmp_path / "here", tmp_path / "target.sock"
    if kind == "file":
        path.write_text("mine")
    elif kind == "folder":
        path.mkdir()
    else:
        bind_unix(target).close()
        path.symlink_to(target)
    before = path.lstat().st_ino
    with pytest.raises(UsageError, match="is not a socket; it is left as it is"):
        bind_unix(path)
    assert path.lstat().st_ino == before
    assert kind != "link" or target.is_socket()


@pytest.mark.parametrize("where", ["nowhere/server.sock", "x" * 200])
def test_a_path_that_cannot_be_is_a_sentence(tmp_path: Path, where: str) -> None:
    """A folder that is missing; a path too long for a socket."""
    with pytest.raises(UsageError, match=r"--uds .*: can't listen there: "):
        bind_unix(tmp_path / where)


def test_a_listener_takes_its_own_socket_away(tmp_path: Path) -> None:
    """And leaves the one that another server has put there meanwhile."""
    path = tmp_path / "server.sock"
    first = Listener(Settings(uds=str(path)))
    assert first.url == f"http+unix://{path}"
    first.close()
    assert not path.exists()
    second = Listener(Settings(uds=str(path)))
    path.unlink()
    third = Listener(Settings(uds=str(path)))
    second.close()
    connect(path)
    third.close()
    third.close()  # it is gone: no error
    assert not path.exists()


def test_an_address_tells_its_scheme() -> None:
    """https where it speaks TLS, and the port that was free."""
    plain, secure = Listener(Settings(port=0)), Listener(Settings(port=0, tls_cert="c.pem", tls_key="k.pem"))
    assert plain.url == f"http://127.0.0.1:{plain.socket.getsockname()[1]}"
    assert secure.url == f"https://127.0.0.1:{secure.socket.getsockname()[1]}"
    plain.close()
    secure.close()
