"""List the commands of system-packages.txt that are missing here; exit code 1 where CI=true and there are some."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

LIST = Path(__file__).with_name("system-packages.txt")


def missing() -> list[tuple[str, str, str]]:
    """(Debian package, command, who runs it) of each command that is not on the PATH."""
    lines = [line for line in LIST.read_text().splitlines() if line and not line.startswith("#")]
    told = [line.split(maxsplit=2) for line in lines]
    return [(package, command, why) for package, command, why in told if shutil.which(command) is None]


def main() -> int:
    """Print them for a person, on stderr."""
    gone = missing()
    for package, command, why in gone:
        print(f"missing: {command} (Debian package {package}); {why}. What needs it is skipped.", file=sys.stderr)
    return 1 if gone and os.environ.get("CI") == "true" else 0


if __name__ == "__main__":
    sys.exit(main())
