"""Available memory: the machine's, less what control groups and RLIMIT_AS take from it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from bisimetric import _memory
from bisimetric.errors import InsufficientMemory

MIB = 2**20


def proc(folder: Path, groups: str, mounts: str) -> Path:
    """A folder of /proc for a process in some groups, of which some are mounted below `folder`."""
    found = folder / "proc"
    found.mkdir()
    (found / "cgroup").write_text(groups)
    (found / "mountinfo").write_text(mounts.replace("{}", str(folder)))
    return found


def group(folder: Path, **files: object) -> None:
    """A control group with files such as memory_max=..., "_" for "."."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name.replace("memory_", "memory.")).write_text(f"{content}\n")


V2 = "30 23 0:26 / {}/cg rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
V1 = "35 31 0:32 {root} {{}}/cg/memory rw,relatime - cgroup cgroup rw,memory\n"


def test_the_smallest_cgroup_v2_limit_counts(tmp_path: Path) -> None:
    at = proc(tmp_path, "0::/user/job\n", "25 1 8:1 / / rw - ext4 /dev/vda rw\n" + V2)
    group(tmp_path / "cg")
    group(
        tmp_path / "cg" / "user",
        memory_max=600 * MIB,
        memory_current=500 * MIB,
        memory_stat=f"anon 1\ninactive_file {300 * MIB}",
    )
    group(tmp_path / "cg" / "user" / "job", memory_max="max", memory_current=100 * MIB)
    assert list(_memory.remaining_cgroup_memory(at)) == [400 * MIB]
    assert _memory.available_memory(at) == 400 * MIB
    group(tmp_path / "cg" / "user" / "job", memory_max=150 * MIB)
    assert sorted(_memory.remaining_cgroup_memory(at)) == [50 * MIB, 400 * MIB]
    assert _memory.available_memory(at) == 50 * MIB


def test_the_namespace_of_a_container_mounts_its_own_group(tmp_path: Path) -> None:
    at = proc(tmp_path, "0::/\n", V2)
    group(tmp_path / "cg", memory_max=600 * MIB, memory_current=40 * MIB)
    assert _memory.available_memory(at) == 560 * MIB
    # Seen from another namespace the path leads upwards, out of the mount.
    (at / "cgroup").write_text("0::/../../other\n")
    assert _memory.available_memory(at) == 560 * MIB


@pytest.mark.parametrize(("path", "root"), [("/a/b", "/"), ("/docker/1/a/b", "/docker/1")])
def test_cgroup_v1_includes_the_limits_above_its_mount(
    tmp_path: Path, path: str, root: str
) -> None:
    groups = f"5:cpu,cpuacct:/\n4:memory:{path}\n0::/\n"
    at = proc(tmp_path, groups, V1.format(root=root))
    unlimited = 2**63 - 4096
    group(
        tmp_path / "cg" / "memory" / "a" / "b",
        memory_limit_in_bytes=unlimited,
        memory_usage_in_bytes=100 * MIB,
        memory_stat=f"inactive_file 7\ntotal_inactive_file {60 * MIB}\n"
        f"hierarchical_memory_limit {600 * MIB}",
    )
    group(
        tmp_path / "cg" / "memory" / "a",
        memory_limit_in_bytes=700 * MIB,
        memory_usage_in_bytes=300 * MIB,
    )
    assert min(_memory.remaining_cgroup_memory(at)) == 400 * MIB
    assert 560 * MIB in list(_memory.remaining_cgroup_memory(at))
    assert _memory.available_memory(at) == 400 * MIB


def test_both_versions_at_once_and_a_path_with_spaces(tmp_path: Path) -> None:
    mounts = V1.format(root="/") + V2.replace("/cg ", "/c\\040g ")
    at = proc(tmp_path, "4:memory:/\n0::/\n", mounts)
    group(tmp_path / "cg" / "memory", memory_limit_in_bytes=9 * MIB, memory_usage_in_bytes=MIB)
    group(tmp_path / "c g", memory_max=7 * MIB, memory_current=MIB)
    assert sorted(_memory.remaining_cgroup_memory(at)) == [6 * MIB, 8 * MIB]


@pytest.mark.parametrize(
    ("groups", "mounts"),
    [("", ""), ("nonsense\n\n:::\n", "a b\nc - d\n"), ("0::/gone\n", V2)],
)
def test_without_readable_limits_the_machine_counts(
    tmp_path: Path, groups: str, mounts: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = psutil.virtual_memory()._replace(available=123 * MIB)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: free)
    assert _memory.available_memory(proc(tmp_path, groups, mounts)) == 123 * MIB
    assert _memory.available_memory(tmp_path / "none") == 123 * MIB


def test_requests_above_a_limit_raise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at = proc(tmp_path, "0::/\n", V2)
    group(tmp_path / "cg", memory_max=600 * MIB, memory_current=700 * MIB)
    assert _memory.available_memory(at) == 0
    group(tmp_path / "cg", memory_current=100 * MIB)
    available = _memory.available_memory
    monkeypatch.setattr(_memory, "available_memory", lambda: available(at))
    # 12,000 states in float64 are 1.1 GiB.
    with pytest.raises(InsufficientMemory, match=r"1\.07 GiB of memory and 500 MiB are free"):
        _memory.require_memory("12,000 states need", 12_000**2 * 8, "take fewer")
    _memory.require_memory("it needs", 500 * MIB, "take less")


def test_numbers_beyond_any_float_raise() -> None:
    with pytest.raises(InsufficientMemory, match="PiB"):
        _memory.require_memory("it needs", 10**400, "take less")


LIMITED = """
import resource
from bisimetric import _memory, exact, worlds
from bisimetric.errors import InsufficientMemory
before = _memory.available_memory()
space = resource.getrlimit(resource.RLIMIT_AS)
import psutil
limit = psutil.Process().memory_info().vms + 400 * 2**20
resource.setrlimit(resource.RLIMIT_AS, (limit, space[1]))
after = _memory.available_memory()
assert after <= 400 * 2**20 < before, (before, after)
mdp = worlds.load("random", states=12_000, actions=1)
try:
    exact.bisimulation(mdp)
except InsufficientMemory as error:
    print(error)
"""


def test_the_address_space_of_a_process_limits_its_tables() -> None:
    """RLIMIT_AS really: without it in the estimate the table fails while it is allocated."""
    run = subprocess.run(
        [sys.executable, "-c", LIMITED], capture_output=True, text=True, timeout=300, check=False
    )
    assert run.returncode == 0, run.stderr
    assert "12,000 states need" in run.stdout
    assert "are free" in run.stdout
