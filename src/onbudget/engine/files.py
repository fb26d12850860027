"""Writing files so that nobody ever sees half of one."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from onbudget.core.errors import UsageError


def write_atomically(path: Path, data: bytes | Iterable[bytes]) -> None:
    """Write `data` under a temporary name beside `path`, then rename; UsageError where the folder does not let us.

    Pieces are written as they come, so that a large file is never whole in memory.

    An existing file keeps its permissions; a new one gets the usual ones.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        mode = path.stat().st_mode & 0o777 if path.exists() else None
        with temporary.open("wb") as file:
            file.writelines((data,) if isinstance(data, bytes) else data)
            file.flush()
            os.fsync(file.fileno())
        if mode is not None:
            temporary.chmod(mode)
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise UsageError(f"{path} cannot be written: {error.strerror}") from error
