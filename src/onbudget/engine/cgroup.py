"""What this process's control groups allow it: CPU quota, memory, and how often it was throttled.

A quota binds a whole subtree, so the tightest of all ancestors counts. Both hierarchies are read, because a hybrid
system has v1 controllers beside an empty v2 tree: `cpu.max` (v2), `cpu.cfs_quota_us` over `cpu.cfs_period_us` (v1).
Where a group lies is told by /proc/self/cgroup (which group) and /proc/self/mountinfo (which part of the tree is
mounted where): in a container the mount often begins at the container's own group. Groups above what is mounted can't
be seen. Files and their meaning: the kernel's admin-guide/cgroup-v2.rst and scheduler/sched-bwc.rst.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

_NO_LIMIT = 1 << 60  # v1 writes "no memory limit" as a number near 2**63


@dataclass(frozen=True, slots=True)
class Throttling:
    """Since the groups were made: quota periods seen, periods in which we were stopped, seconds stopped."""

    periods: int
    throttled: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Cgroups:
    """The folders that bind this process, leaf first: of the CPU controller and of the memory controller."""

    cpu: tuple[Path, ...] = ()
    memory: tuple[Path, ...] = ()

    @classmethod
    def find(cls, root: Path) -> Cgroups:
        """Look under `root` (a fixture tree in tests); empty where there are no control groups."""
        groups = _groups(root)
        mounts = list(_mounts(root))
        return cls(
            cpu=tuple(_folders(root, groups, mounts, "cpu")),
            memory=tuple(_folders(root, groups, mounts, "memory")),
        )

    def quota(self) -> tuple[float, str] | None:
        """The tightest CPU quota in cores, and the file that says so; None without one."""
        found = [(cores, str(file)) for folder in self.cpu for cores, file in _quota(folder)]
        return min(found, default=None)

    def memory_limit(self) -> int | None:
        """The tightest memory limit in bytes; None without one."""
        return min((limit for folder in self.memory for limit in _memory_limit(folder)), default=None)

    def memory_left(self) -> int | None:
        """Bytes until the nearest limit, counting reclaimable file cache as free; None without a limit."""
        left = []
        for folder in self.memory:
            for limit in _memory_limit(folder):
                used = _number(folder / "memory.current") or _number(folder / "memory.usage_in_bytes") or 0
                stat = _pairs(folder / "memory.stat")
                cache = stat.get("total_inactive_file", stat.get("inactive_file", 0))
                left.append(max(0, limit - max(0, used - cache)))
        return min(left, default=None)

    def throttling(self) -> Throttling | None:
        """Read now. Each group counts its own quota only, so the levels add up; None where nothing counts."""
        stats = [stat for stat in (_pairs(folder / "cpu.stat") for folder in self.cpu) if "nr_throttled" in stat]
        if not stats:
            return None
        return Throttling(
            periods=sum(stat.get("nr_periods", 0) for stat in stats),
            throttled=sum(stat["nr_throttled"] for stat in stats),
            seconds=sum(stat.get("throttled_usec", 0) / 1e6 + stat.get("throttled_time", 0) / 1e9 for stat in stats),
        )


def read_text(path: Path) -> str:
    """A small system file's text; empty where it is absent, unreadable or gone meanwhile."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _number(path: Path) -> int | None:
    text = read_text(path).strip()
    return int(text) if re.fullmatch(r"-?\d+", text) else None


def _pairs(path: Path) -> dict[str, int]:
    """`name number` lines."""
    parts = (line.split() for line in read_text(path).splitlines())
    return {p[0]: int(p[1]) for p in parts if len(p) == 2 and p[1].isdigit()}


def _quota(folder: Path) -> Iterator[tuple[float, Path]]:
    v2 = folder / "cpu.max"
    match read_text(v2).split():
        case [quota, period] if quota.isdigit() and period.isdigit() and int(period) > 0:
            yield int(quota) / int(period), v2
    v1 = folder / "cpu.cfs_quota_us"
    microseconds, period_us = _number(v1), _number(folder / "cpu.cfs_period_us")
    if microseconds is not None and microseconds > 0 and period_us:
        yield microseconds / period_us, v1


def _memory_limit(folder: Path) -> Iterator[int]:
    for name in ("memory.max", "memory.limit_in_bytes"):
        limit = _number(folder / name)  # v2 writes "max" where there is none
        if limit is not None and 0 < limit < _NO_LIMIT:
            yield limit


def _groups(root: Path) -> dict[str, str]:
    """Controller → this process's group in its hierarchy; the v2 hierarchy is under the empty name."""
    found: dict[str, str] = {}
    for line in read_text(root / "proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        for name in controllers.split(","):
            found[name] = path
    return found


@dataclass(frozen=True, slots=True)
class _Mount:
    top: str  # the group that the mount point shows
    point: str
    controllers: frozenset[str]  # of v1; empty for v2


def _mounts(root: Path) -> Iterator[_Mount]:
    for line in read_text(root / "proc/self/mountinfo").splitlines():
        left, separator, right = line.partition(" - ")
        fields, kinds = left.split(), right.split()
        if not separator or len(fields) < 5 or not kinds or kinds[0] not in ("cgroup", "cgroup2"):
            continue
        names = frozenset(kinds[-1].split(",")) if kinds[0] == "cgroup" else frozenset[str]()
        yield _Mount(_unescape(fields[3]), _unescape(fields[4]), names)


def _unescape(text: str) -> str:
    """mountinfo writes spaces, tabs and backslashes as three octal digits."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), text)


def _folders(root: Path, groups: dict[str, str], mounts: list[_Mount], controller: str) -> Iterator[Path]:
    for mount in mounts:
        if mount.controllers and controller not in mount.controllers:
            continue
        group = groups.get(controller if mount.controllers else "")
        if group is None:
            continue
        point = root / mount.point.lstrip("/")
        below = PurePosixPath(group)
        # A container may see the host's name for its group, or a group above its namespace ("/../x"): then the mount
        # point itself is the best that can be seen.
        inside = below.relative_to(mount.top) if below.is_relative_to(mount.top) else PurePosixPath()
        if ".." in inside.parts:
            inside = PurePosixPath()
        yield from (point / part for part in (inside, *inside.parents))
