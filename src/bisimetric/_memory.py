"""Compute how much memory this process may allocate, and raise before a larger request."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import psutil

from bisimetric._text import format_bytes
from bisimetric.errors import InsufficientMemory

ALWAYS_AVAILABLE_BYTES = 2**26
"""Requests below this are not checked."""

PROC_SELF = Path("/proc/self")
"""The folder in which Linux describes this process."""


def require_memory(subject: str, needed: float, remedy: str, free: float | None = None) -> None:
    """Raise InsufficientMemory unless `needed` bytes are free.

    Args:
        subject: begins the message, such as "exact.lax: 5,000 states need".
        needed: in bytes.
        remedy: ends the message.
        free: the free bytes of another device; None is the memory of this process.

    >>> require_memory("a matrix needs", 1e18, "use less")
    Traceback (most recent call last):
    ...
    bisimetric.errors.InsufficientMemory: a matrix needs 888 PiB of memory and ... are free; use
    less.
    """
    if not (fits_in_memory(needed) if free is None else needed <= free):
        free = available_memory() if free is None else free
        raise InsufficientMemory(
            f"{subject} {format_bytes(needed)} of memory and {format_bytes(free)} are free; "
            f"{remedy}."
        )


def fits_in_memory(needed: float) -> bool:
    """Whether this process may allocate `needed` bytes."""
    return needed < ALWAYS_AVAILABLE_BYTES or needed <= available_memory()


def available_memory(process: Path = PROC_SELF) -> float:
    """Return the bytes that this process may still allocate.

    The smallest of the machine's available memory, the remainder of every visible memory limit of
    its control groups (cgroup v1 and v2), and the remainder of its address space (RLIMIT_AS).
    Reclaimable page cache counts as free.

    Args:
        process: the folder of /proc that describes the process.
    """
    machine = float(psutil.virtual_memory().available)
    return max(0.0, min(machine, remaining_address_space(), *remaining_cgroup_memory(process)))


def remaining_address_space() -> float:
    """Return the bytes that RLIMIT_AS leaves to this process; infinite without a limit."""
    try:
        import resource

        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    except (ImportError, AttributeError):  # Windows has no such limits
        return float("inf")
    if limit == resource.RLIM_INFINITY:
        return float("inf")
    return float(limit - psutil.Process().memory_info().vms)


def remaining_cgroup_memory(process: Path = PROC_SELF) -> Iterator[float]:
    """Yield the bytes that each memory limit of the control groups of a process leaves."""
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
        is_v2 = kind[0] == "cgroup2"
        if not is_v2 and not (kind[0] == "cgroup" and "memory" in kind[2].split(",")):
            continue
        root, point = (_unescape(field) for field in fields[3:5])
        for group in groups:
            number, _, rest = group.partition(":")
            controllers, _, path = rest.partition(":")
            belongs = number == "0" if is_v2 else "memory" in controllers.split(",")
            if belongs:
                yield from _remaining_below_limits(Path(point), _relative_group(path, root), is_v2)


def _remaining_below_limits(mount: Path, group: PurePosixPath, is_v2: bool) -> Iterator[float]:
    """Yield what the limits of a group and of its ancestors leave, up to the mount."""
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
            in_use = max(0.0, used - cache)
            yield from (limit - in_use for limit in limits if limit is not None)


def _relative_group(path: str, root: str) -> PurePosixPath:
    """Return the path of a group below a mount of the group `root`, or the mount itself."""
    group = PurePosixPath(path)
    if ".." in group.parts or not group.is_relative_to(root):
        # In another namespace: a container mounts its own group as the root.
        return PurePosixPath()
    return group.relative_to(root)


def _read_number(path: Path) -> float | None:
    """Read a file that holds one number, or return None."""
    try:
        return float(path.read_text())
    except (OSError, ValueError):  # no limit, or "max"
        return None


def _read_stat(path: Path) -> dict[str, float]:
    """Read the names and numbers of a memory.stat file."""
    try:
        pairs = [line.split() for line in path.read_text().splitlines()]
        return {pair[0]: float(pair[1]) for pair in pairs if len(pair) == 2}
    except (OSError, ValueError):
        return {}


def _unescape(text: str) -> str:
    """Return a path of mountinfo, in which special characters are octal numbers."""
    raw = re.sub(rb"\\([0-7]{3})", lambda found: bytes([int(found[1], 8)]), os.fsencode(text))
    return os.fsdecode(raw)
