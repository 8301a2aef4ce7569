"""How much memory this process may still allocate; larger requests raise before allocating."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import psutil

from bisimetric.errors import InsufficientMemory

ALWAYS_AVAILABLE_BYTES = 2**26
"""Bytes that are always to be had."""

PROC_SELF = Path("/proc/self")
"""Where Linux describes this process: its control groups, their mounts, its address space."""


def require_memory(subject: str, needed: float, remedy: str, free: float | None = None) -> None:
    """Raises TableTooLarge where `needed` bytes are not free: what needs them, and what to do.

    `free` is what another device has free, where it is not the machine's own memory.

    >>> require_memory("a thimble needs", 1e18, "use a thimble")
    Traceback (most recent call last):
    ...
    bisimetric.errors.TableTooLarge: a thimble needs 888 PiB of memory and ... are free; use a
    thimble.
    """
    if not (fits_in_memory(needed) if free is None else needed <= free):
        free = available_memory() if free is None else free
        raise InsufficientMemory(
            f"{subject} {_format_bytes(needed)} of memory and {_format_bytes(free)} are free; {remedy}."
        )


def fits_in_memory(needed: float) -> bool:
    """Whether so many bytes are free."""
    return needed < ALWAYS_AVAILABLE_BYTES or needed <= available_memory()


def available_memory(process: Path = PROC_SELF) -> float:
    """Bytes that this process may still allocate.

    The smallest of what the machine has available, what the memory limits of its control groups
    (cgroup v1 and v2, all levels that are visible) leave, and what its address space (RLIMIT_AS)
    leaves. Page cache that a control group can reclaim counts as free.

    Args:
        process: the folder of /proc that describes the process.
    """
    machine = float(psutil.virtual_memory().available)
    return max(0.0, min(machine, remaining_address_space(), *remaining_cgroup_memory(process)))


def remaining_address_space() -> float:
    """Bytes that RLIMIT_AS leaves to this process; infinite where there is no such limit."""
    try:
        import resource

        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    except (ImportError, AttributeError):  # Windows has no such limits.
        return float("inf")
    if limit == resource.RLIM_INFINITY:
        return float("inf")
    return float(limit - psutil.Process().memory_info().vms)


def remaining_cgroup_memory(process: Path = PROC_SELF) -> Iterator[float]:
    """Bytes that each memory limit of the control groups of a process leaves, from /proc."""
    try:
        groups = (process / "cgroup").read_text().splitlines()
        mounts = (process / "mountinfo").read_text().splitlines()
    except (OSError, UnicodeDecodeError):
        return
    for line in mounts:
        before, _, after = line.partition(" - ")
        fields, kind = before.split(), after.split()
        if len(fields) < 5 or len(kind) < 3:
            continue
        second = kind[0] == "cgroup2"
        if not second and not (kind[0] == "cgroup" and "memory" in kind[2].split(",")):
            continue
        root, point = (_unescape(each) for each in fields[3:5])
        for group in groups:
            number, _, rest = group.partition(":")
            controllers, _, path = rest.partition(":")
            mine = number == "0" if second else "memory" in controllers.split(",")
            if mine:
                yield from _remaining_below_limits(Path(point), _relative_group(path, root), second)


def _remaining_below_limits(mount: Path, group: PurePosixPath, is_v2: bool) -> Iterator[float]:
    """What the limits of a group and of the groups above it leave, up to the mount."""
    for each in (group, *group.parents):
        folder = mount / each
        stat = _read_stat(folder / "memory.stat")
        if is_v2:
            limits = [_read_number(folder / "memory.max")]
            used = _read_number(folder / "memory.current")
            cache = stat.get("inactive_file", 0.0)
        else:
            # The hierarchical limit includes groups above the mount, which are not visible.
            limits = [_read_number(folder / "memory.limit_in_bytes")]
            limits.append(stat.get("hierarchical_memory_limit"))
            used = _read_number(folder / "memory.usage_in_bytes")
            cache = stat.get("total_inactive_file", stat.get("inactive_file", 0.0))
        if used is not None:
            held = max(0.0, used - cache)
            yield from (limit - held for limit in limits if limit is not None)


def _relative_group(path: str, root: str) -> PurePosixPath:
    """The path of a group below a mount of the group `root`; the mount itself where it is not."""
    group = PurePosixPath(path)
    if ".." in group.parts or not group.is_relative_to(root):
        # Of another namespace: in a container its own group is mounted as the root.
        return PurePosixPath()
    return group.relative_to(root)


def _read_number(path: Path) -> float | None:
    try:
        return float(path.read_text())
    except (OSError, ValueError):  # No such limit, or "max".
        return None


def _read_stat(path: Path) -> dict[str, float]:
    try:
        pairs = [line.split() for line in path.read_text().splitlines()]
        return {pair[0]: float(pair[1]) for pair in pairs if len(pair) == 2}
    except (OSError, ValueError):
        return {}


def _unescape(text: str) -> str:
    """A path as mountinfo writes it: spaces and such as octal numbers."""
    raw = re.sub(rb"\\([0-7]{3})", lambda found: bytes([int(found[1], 8)]), os.fsencode(text))
    return os.fsdecode(raw)


def _format_bytes(num_bytes: float) -> str:
    num_bytes = min(num_bytes, 1e300)  # A larger int is no float.
    for unit in ("bytes", "KiB", "MiB", "GiB", "TiB"):
        if num_bytes < 1024:
            return f"{num_bytes:.3g} {unit}"
        num_bytes /= 1024
    return f"{num_bytes:.3g} PiB"
