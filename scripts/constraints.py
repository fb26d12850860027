"""Turn pip's installation report into the lines of constraints.txt, on stdout."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

HEADER = """\
# One set of versions in which the package, its tests, and everything they talk to resolve together.
# Made by scripts/constraints.sh from scripts/constraints.in; do not edit by hand.
# Resolved by pip {pip} for Python {python}, {platform}.
# torch is what CI installs. protobuf stays at 6, because tritonclient and kserve refuse 7; the gRPC packages that hold
# generated code stay at 1.81.1, the last that 6 reads. kserve holds psutil below 6, tritonclient ml-dtypes at 0.5.4.
# Nothing that was asked for had to be left out.
"""


def pins(report: dict[str, object]) -> dict[str, str]:
    """Name (as PEP 503 spells it) to version, without a local part such as `+cpu`, which other machines do not have."""
    found: dict[str, str] = {}
    for item in report["install"]:  # type: ignore[attr-defined]  # pip's report is plain JSON
        meta = item["metadata"]
        found[re.sub(r"[-_.]+", "-", meta["name"]).lower()] = meta["version"].partition("+")[0]
    return found


def main() -> None:
    """Read the report named on the command line."""
    report = json.loads(Path(sys.argv[1]).read_text())
    told = report["environment"]
    print(
        HEADER.format(
            pip=report["pip_version"],
            python=told["python_full_version"],
            platform=f"{told['sys_platform']} {told['platform_machine']}",
        ),
        end="",
    )
    for name, version in sorted(pins(report).items()):
        print(f"{name}=={version}")


if __name__ == "__main__":
    main()
