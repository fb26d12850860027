"""What this machine is and what it lets this process use, read from files under a root folder.

The number of CPUs is what affinity and the control groups' quota allow, never what the host has. Everything that
cannot be read is None, and `notes` says so in a sentence: other systems than Linux are served, only with fewer facts.
"""

from __future__ import annotations

import hashlib
import math
import os
import platform
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from onbudget.engine.cgroup import Cgroups, Throttling, read_text

# Instruction sets that decide how fast, and in int8 how exactly, a model runs.
_ISA = {
    *("sse4_1", "sse4_2", "avx", "f16c", "fma", "avx2", "avx512f", "avx512bw", "avx512vl", "avx512_vnni"),
    *("avx512_bf16", "avx512_fp16", "avx_vnni", "avx_vnni_int8", "amx_tile", "amx_int8", "amx_bf16"),
    *("asimd", "asimdhp", "asimddp", "i8mm", "bf16", "sve", "sve2", "sme"),
}
# Arm writes numbers instead of a name. (implementer, part) -> name, from the kernel's arch/arm64/include/asm/cputype.h
_ARM = {
    ("0x41", "0xd03"): "Arm Cortex-A53",
    ("0x41", "0xd08"): "Arm Cortex-A72",
    ("0x41", "0xd0b"): "Arm Cortex-A76",
    ("0x41", "0xd0c"): "Arm Neoverse-N1",
    ("0x41", "0xd40"): "Arm Neoverse-V1",
    ("0x41", "0xd49"): "Arm Neoverse-N2",
    ("0x41", "0xd4f"): "Arm Neoverse-V2",
}


@dataclass(frozen=True, slots=True)
class Machine:
    """One reading of the machine. `throttling()` and `steal_ticks()` read anew each time, to be compared."""

    root: Path
    arch: str
    cpu: str
    flags: tuple[str, ...]  # all that the CPU tells, sorted
    affinity: int  # CPUs that this process may run on
    quota: float | None  # cores a second of wall time, over all threads
    quota_file: str | None
    cgroups: Cgroups
    memory_total: int | None
    memory_limit: int | None
    memory_available: int | None
    governors: tuple[str, ...]
    system: str
    python: str
    onnxruntime: str | None
    notes: tuple[str, ...] = field(default=())

    @classmethod
    def read(cls, root: str | Path = "/", *, onnxruntime: str | None = None) -> Machine:
        """Read the facts under `root`; never raises for a missing file. `onnxruntime` is its version where known."""
        top = Path(root)
        cpu, flags = _cpu(top)
        affinity, notes = _affinity(top)
        groups = Cgroups.find(top)
        quota = groups.quota()
        memory = _meminfo(top)
        left = [n for n in (memory.get("MemAvailable"), groups.memory_left()) if n is not None]
        return cls(
            root=top,
            arch=platform.machine(),
            cpu=cpu,
            flags=flags,
            affinity=affinity,
            quota=quota[0] if quota else None,
            quota_file=quota[1] if quota else None,
            cgroups=groups,
            memory_total=memory.get("MemTotal"),
            memory_limit=groups.memory_limit(),
            memory_available=min(left, default=None),
            governors=_governors(top),
            system=_system(top),
            python=platform.python_version(),
            onnxruntime=onnxruntime or _onnxruntime_version(),
            notes=tuple(notes),
        )

    def cores(self) -> float:
        """CPUs that this process can keep busy: the smaller of affinity and quota."""
        return float(self.affinity) if self.quota is None else min(float(self.affinity), self.quota)

    def threads(self) -> int:
        """Threads that may run at once without being throttled: whole cores, at least one."""
        return max(1, math.floor(self.cores()))

    def isa(self) -> tuple[str, ...]:
        """The flags that matter to a model's speed and to int8 answers."""
        return tuple(f for f in self.flags if f in _ISA)

    def throttling(self) -> Throttling | None:
        """How often the quota stopped us so far; read now."""
        return self.cgroups.throttling()

    def steal_ticks(self) -> tuple[int, int] | None:
        """(stolen, all) ticks of the whole machine since boot; read now. A share is the ratio of two differences."""
        first = read_text(self.root / "proc/stat").partition("\n")[0].split()
        if len(first) < 9 or first[0] != "cpu":
            return None
        ticks = [int(n) for n in first[1:9]]  # guest time, beyond, is already inside user
        return ticks[7], sum(ticks)

    def hash(self) -> str:
        """16 hex digits of what a measured cost depends on: CPU, what we may use of it, governor, runtime."""
        quota = None if self.quota is None else round(self.quota, 2)
        told = (self.arch, self.cpu, self.isa(), self.affinity, quota, self.governors, self.onnxruntime)
        return hashlib.sha256(repr(told).encode()).hexdigest()[:16]

    def facts(self) -> dict[str, Any]:
        """The same as plain JSON-ready data, for records and status pages."""
        throttling, steal = self.throttling(), self.steal_ticks()
        return {
            "hash": self.hash(),
            "cpu": self.cpu,
            "arch": self.arch,
            "isa": list(self.isa()),
            "virtual": "hypervisor" in self.flags,
            "affinity": self.affinity,
            "quota": self.quota,
            "quota_file": self.quota_file,
            "cores": self.cores(),
            "threads": self.threads(),
            "throttled_periods": throttling.throttled if throttling else None,
            "throttled_seconds": throttling.seconds if throttling else None,
            "steal_share_since_boot": round(steal[0] / steal[1], 5) if steal and steal[1] else None,
            "governor": ",".join(self.governors) or None,
            "memory_total": self.memory_total,
            "memory_limit": self.memory_limit,
            "memory_available": self.memory_available,
            "system": self.system,
            "python": self.python,
            "onnxruntime": self.onnxruntime,
            "notes": list(self.notes),
        }


def facts(root: str | Path = "/", *, onnxruntime: str | None = None) -> dict[str, Any]:
    """`Machine.read(root).facts()`."""
    return Machine.read(root, onnxruntime=onnxruntime).facts()


def _cpu(root: Path) -> tuple[str, tuple[str, ...]]:
    """The first processor's name and flags."""
    told: dict[str, str] = {}
    for line in _first_block(root / "proc/cpuinfo"):
        name, _, value = line.partition(":")
        told.setdefault(name.strip(), value.strip())
    part = (told.get("CPU implementer", ""), told.get("CPU part", ""))
    named = told.get("model name") or _ARM.get(part)
    if not named and part[1]:
        named = f"Arm implementer {part[0]} part {part[1]}"
    flags = (told.get("flags") or told.get("Features") or "").split()
    return named or platform.processor() or "unknown", tuple(sorted(set(flags)))


def _first_block(path: Path) -> Iterator[str]:
    """Lines up to the first empty one: the kernel makes this file as it is read, and hosts have hundreds of CPUs."""
    try:
        with path.open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if not line.strip():
                    return
                yield line
    except OSError:
        return


def _affinity(root: Path) -> tuple[int, list[str]]:
    """How many CPUs this process may run on, and what could not be told."""
    if root == Path("/") and hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0)), []
    allowed = re.search(r"^Cpus_allowed_list:\s*(\S+)", read_text(root / "proc/self/status"), re.MULTILINE)
    if allowed:
        return _count(allowed[1]), []
    count = os.cpu_count() or 1
    return count, [f"this system does not tell which CPUs a process may use; all {count} are counted"]


def _count(ranges: str) -> int:
    """How many CPUs `0-3,8` names."""
    ends = [[int(n) for n in part.split("-")] for part in ranges.split(",")]
    return sum(pair[-1] - pair[0] + 1 for pair in ends)


def _meminfo(root: Path) -> dict[str, int]:
    """/proc/meminfo in bytes."""
    found = re.findall(r"^(\w+):\s+(\d+) kB$", read_text(root / "proc/meminfo"), re.MULTILINE)
    return {name: int(value) * 1024 for name, value in found}


def _governors(root: Path) -> tuple[str, ...]:
    """Each CPU's frequency governor, once; a virtual machine has none."""
    policies = sorted((root / "sys/devices/system/cpu/cpufreq").glob("policy*/scaling_governor"))
    return tuple(sorted({text for text in (read_text(p).strip() for p in policies) if text}))


def _system(root: Path) -> str:
    """The kernel, and the distribution where it is told."""
    named = re.search(r'^PRETTY_NAME="?([^"\n]*)', read_text(root / "etc/os-release"), re.MULTILINE)
    kernel = f"{platform.system()} {platform.release()}"
    return f"{named[1]} ({kernel})" if named else kernel


def _onnxruntime_version() -> str | None:
    """The installed version, without importing onnxruntime."""
    from importlib import metadata  # 20 ms that a caller who knows the version does not pay

    try:
        return metadata.version("onnxruntime")
    except metadata.PackageNotFoundError:  # onnxruntime-gpu and its like carry other names
        return None
