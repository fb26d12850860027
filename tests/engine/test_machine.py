"""What the machine allows, read from fixture trees: quotas in every layout that containers have shown."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from onbudget.engine import machine
from onbudget.engine.machine import Machine

V2 = "30 23 0:26 {top} /sys/fs/cgroup rw,nosuid - cgroup2 cgroup rw\n"
V1_CPU = "33 32 0:29 {top} /sys/fs/cgroup/cpu,cpuacct rw,nosuid master:11 - cgroup cgroup rw,cpu,cpuacct\n"
V1_MEMORY = "34 32 0:30 {top} /sys/fs/cgroup/memory rw master:12 - cgroup cgroup rw,memory\n"


def tree(root: Path, files: dict[str, str]) -> Path:
    """Write a fixture tree; 64 CPUs allowed unless it says otherwise."""
    for name, text in {"proc/self/status": "Name:\tx\nCpus_allowed_list:\t0-63\n", **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


LAYOUTS = {
    "v2, a container with its own namespace": (
        {
            "proc/self/cgroup": "0::/\n",
            "proc/self/mountinfo": V2.format(top="/"),
            "sys/fs/cgroup/cpu.max": "250000 100000\n",
        },
        2.5,
        2,
    ),
    "v2, the tightest is a grandparent": (
        {
            "proc/self/cgroup": "0::/kubepods.slice/pod1/leaf\n",
            "proc/self/mountinfo": V2.format(top="/"),
            "sys/fs/cgroup/kubepods.slice/cpu.max": "50000 100000\n",
            "sys/fs/cgroup/kubepods.slice/pod1/cpu.max": "400000 100000\n",
            "sys/fs/cgroup/kubepods.slice/pod1/leaf/cpu.max": "max 100000\n",
        },
        0.5,
        1,
    ),
    "v2, a mount that begins at the container's group": (
        {
            "proc/self/cgroup": "0::/docker/abc/inner\n",
            "proc/self/mountinfo": V2.format(top="/docker/abc"),
            "sys/fs/cgroup/cpu.max": "300000 100000\n",
            "sys/fs/cgroup/inner/cpu.max": "max 100000\n",
        },
        3.0,
        3,
    ),
    "v2, a group named from outside of the mount": (
        {
            "proc/self/cgroup": "0::/system.slice/docker-abc.scope\n",
            "proc/self/mountinfo": V2.format(top="/other"),
            "sys/fs/cgroup/cpu.max": "150000 100000\n",
        },
        1.5,
        1,
    ),
    "v2, a group above our namespace": (
        {
            "proc/self/cgroup": "0::/../sibling\n",
            "proc/self/mountinfo": V2.format(top="/"),
            "sys/fs/cgroup/cpu.max": "100000 50000\n",
        },
        2.0,
        2,
    ),
    "v2, no quota": (
        {
            "proc/self/cgroup": "0::/\n",
            "proc/self/mountinfo": V2.format(top="/"),
            "sys/fs/cgroup/cpu.max": "max 100000\n",
        },
        64.0,
        64,
    ),
    "v1, a classic container": (
        {
            "proc/self/cgroup": "5:cpu,cpuacct:/docker/abc\n4:memory:/docker/abc\n",
            "proc/self/mountinfo": V1_CPU.format(top="/docker/abc"),
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "400000\n",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
        },
        4.0,
        4,
    ),
    "v1, a pod tighter than its container": (
        {
            "proc/self/cgroup": "5:cpu,cpuacct:/kubepods/pod1/c\n",
            "proc/self/mountinfo": V1_CPU.format(top="/"),
            "sys/fs/cgroup/cpu,cpuacct/kubepods/pod1/cpu.cfs_quota_us": "120000\n",
            "sys/fs/cgroup/cpu,cpuacct/kubepods/pod1/cpu.cfs_period_us": "100000\n",
            "sys/fs/cgroup/cpu,cpuacct/kubepods/pod1/c/cpu.cfs_quota_us": "-1\n",
            "sys/fs/cgroup/cpu,cpuacct/kubepods/pod1/c/cpu.cfs_period_us": "100000\n",
        },
        1.2,
        1,
    ),
    "hybrid, v1 quota beside an empty v2 tree": (
        {
            "proc/self/cgroup": "5:cpu,cpuacct:/a\n0::/user.slice\n",
            "proc/self/mountinfo": V1_CPU.format(top="/") + V2.format(top="/").replace("cgroup rw,", "cgroup/unified "),
            "sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us": "200000\n",
            "sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us": "100000\n",
        },
        2.0,
        2,
    ),
    "affinity is tighter than the quota": (
        {
            "proc/self/status": "Cpus_allowed_list:\t2,4-5\n",
            "proc/self/cgroup": "0::/\n",
            "proc/self/mountinfo": V2.format(top="/"),
            "sys/fs/cgroup/cpu.max": "1600000 100000\n",
        },
        3.0,
        3,
    ),
    "a mount point with a space in its name": (
        {
            "proc/self/cgroup": "0::/\n",
            "proc/self/mountinfo": "30 23 0:26 / /mnt/my\\040groups rw - cgroup2 cgroup rw\n",
            "mnt/my groups/cpu.max": "100000 100000\n",
        },
        1.0,
        1,
    ),
    "unreadable numbers are no quota": (
        {
            "proc/self/cgroup": "0::/\nnonsense\n",
            "proc/self/mountinfo": "short\n" + V2.format(top="/"),
            "sys/fs/cgroup/cpu.max": "what is this\n",
        },
        64.0,
        64,
    ),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_cores_are_what_affinity_and_every_quota_allow(layout: str, tmp_path: Path) -> None:
    """The tightest of affinity and all groups' quotas counts, and threads never exceed its whole cores (pain 1, 2)."""
    files, cores, threads = LAYOUTS[layout]
    read = Machine.read(tree(tmp_path, files))
    assert read.cores() == pytest.approx(cores)
    assert read.threads() == threads
    told = read.facts()
    assert (told["cores"], told["threads"]) == (read.cores(), threads)
    assert (told["quota_file"] is None) == (told["quota"] is None)


def test_affinity_of_this_process_counts() -> None:
    """A process that may run on one CPU counts one, whatever the host has (pain 3, 4)."""
    if not hasattr(os, "sched_setaffinity"):
        pytest.skip("this system has no affinity")
    code = (
        "import os\n"
        "os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
        "from onbudget.engine.machine import Machine\n"
        "m = Machine.read(onnxruntime='1.0')\n"
        "print(m.affinity, m.threads())"
    )
    ran = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert ran.stdout.split() == ["1", "1"]


def test_throttling_is_read_anew_and_adds_up_the_levels(tmp_path: Path) -> None:
    """Each level counts its own quota's stops; a second reading sees them grow (pain 13)."""
    files = {
        "proc/self/cgroup": "0::/pod/c\n",
        "proc/self/mountinfo": V2.format(top="/"),
        "sys/fs/cgroup/pod/cpu.stat": "usage_usec 9\nnr_periods 10\nnr_throttled 3\nthrottled_usec 1500000\n",
        "sys/fs/cgroup/pod/c/cpu.stat": "usage_usec 9\nnr_periods 10\nnr_throttled 1\nthrottled_usec 500000\n",
    }
    read = Machine.read(tree(tmp_path, files))
    first = read.throttling()
    assert first is not None
    assert (first.periods, first.throttled, first.seconds) == (20, 4, 2.0)
    (tmp_path / "sys/fs/cgroup/pod/c/cpu.stat").write_text("nr_periods 20\nnr_throttled 9\nthrottled_usec 500000\n")
    second = read.throttling()
    assert second is not None
    assert second.throttled == 12


def test_throttling_of_v1_is_in_nanoseconds(tmp_path: Path) -> None:
    """v1 writes throttled_time in nanoseconds; it is shown in seconds like the other."""
    files = {
        "proc/self/cgroup": "5:cpu,cpuacct:/\n",
        "proc/self/mountinfo": V1_CPU.format(top="/"),
        "sys/fs/cgroup/cpu,cpuacct/cpu.stat": "nr_periods 7\nnr_throttled 2\nthrottled_time 250000000\n",
    }
    told = Machine.read(tree(tmp_path, files)).facts()
    assert (told["throttled_periods"], told["throttled_seconds"]) == (2, 0.25)


def test_memory_is_what_the_groups_leave(tmp_path: Path) -> None:
    """The tightest limit counts, reclaimable cache is free, and a v1 "unlimited" number is no limit."""
    files = {
        "proc/self/cgroup": "4:memory:/a/b\n",
        "proc/self/mountinfo": V1_MEMORY.format(top="/"),
        "proc/meminfo": "MemTotal:       8388608 kB\nMemFree: 1 kB\nMemAvailable:    4194304 kB\n",
        "sys/fs/cgroup/memory/a/memory.limit_in_bytes": "1073741824\n",
        "sys/fs/cgroup/memory/a/memory.usage_in_bytes": "900000000\n",
        "sys/fs/cgroup/memory/a/memory.stat": "cache 5\ntotal_inactive_file 400000000\n",
        "sys/fs/cgroup/memory/a/b/memory.limit_in_bytes": "9223372036854771712\n",
    }
    told = Machine.read(tree(tmp_path, files)).facts()
    assert told["memory_total"] == 8 << 30
    assert told["memory_limit"] == 1 << 30
    assert told["memory_available"] == (1 << 30) - 500_000_000


def test_a_system_that_tells_nothing_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without /proc there is a sentence and a count, not a crash."""
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    read = Machine.read(tmp_path)
    assert (read.cores(), read.threads()) == (6.0, 6)
    assert read.notes == ("this system does not tell which CPUs a process may use; all 6 are counted",)
    assert read.throttling() is None
    assert read.steal_ticks() is None
    assert read.facts()["memory_available"] is None


def test_cpu_name_flags_and_governor(tmp_path: Path) -> None:
    """The first processor speaks for all; the governors are listed once."""
    files = {
        "proc/cpuinfo": "processor\t: 0\nmodel name\t: A CPU @ 2GHz\nflags\t\t: fpu avx2 hypervisor fma\n\n"
        "processor\t: 1\nmodel name\t: Other\nflags\t\t: avx512f\n",
        "sys/devices/system/cpu/cpufreq/policy0/scaling_governor": "powersave\n",
        "sys/devices/system/cpu/cpufreq/policy1/scaling_governor": "powersave\n",
        "etc/os-release": 'ID=x\nPRETTY_NAME="Some Linux 1"\n',
        "proc/stat": "cpu  10 0 10 60 0 0 0 20 5 0\ncpu0 1 2 3\n",
    }
    told = Machine.read(tree(tmp_path, files)).facts()
    assert told["cpu"] == "A CPU @ 2GHz"
    assert told["isa"] == ["avx2", "fma"]
    assert told["virtual"] is True
    assert told["governor"] == "powersave"
    assert told["system"].startswith("Some Linux 1 (")
    assert told["steal_share_since_boot"] == 0.2


def test_an_arm_cpu_has_a_name(tmp_path: Path) -> None:
    """Arm tells numbers; known ones get their name, others stay numbers."""
    text = "processor\t: 0\nFeatures\t: fp asimd i8mm\nCPU implementer\t: 0x41\nCPU part\t: {}\n"
    known = Machine.read(tree(tmp_path, {"proc/cpuinfo": text.format("0xd0c")}))
    assert (known.cpu, known.isa()) == ("Arm Neoverse-N1", ("asimd", "i8mm"))
    other = Machine.read(tree(tmp_path, {"proc/cpuinfo": text.format("0xfff")}))
    assert other.cpu == "Arm implementer 0x41 part 0xfff"


def test_the_hash_follows_what_a_cost_depends_on(tmp_path: Path) -> None:
    """Same CPU, quota and runtime: same hash, however the memory stands; another quota or runtime: another hash."""
    files = {
        "proc/self/cgroup": "0::/\n",
        "proc/self/mountinfo": V2.format(top="/"),
        "sys/fs/cgroup/cpu.max": "200000 100000\n",
        "proc/meminfo": "MemTotal: 100 kB\nMemAvailable: 50 kB\n",
    }
    root = tree(tmp_path, files)
    first = Machine.read(root, onnxruntime="1.2").hash()
    (root / "proc/meminfo").write_text("MemTotal: 100 kB\nMemAvailable: 7 kB\n")
    assert Machine.read(root, onnxruntime="1.2").hash() == first
    assert Machine.read(root, onnxruntime="1.3").hash() != first
    (root / "sys/fs/cgroup/cpu.max").write_text("100000 100000\n")
    assert Machine.read(root, onnxruntime="1.2").hash() != first


def test_facts_of_this_machine_are_json() -> None:
    """What is recorded beside a measurement survives JSON, and agrees with itself."""
    told = machine.facts()
    assert json.loads(json.dumps(told)) == told
    assert 1 <= told["threads"] <= max(1, told["cores"])
    assert told["onnxruntime"]
