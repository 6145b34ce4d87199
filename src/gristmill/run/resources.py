"""What this process may use: cores and memory, as the machine, its cgroup and its affinity allow."""

from __future__ import annotations

import os
import resource
import sys
from contextlib import suppress
from pathlib import Path

from gristmill import _native

PAGE_BYTES = resource.getpagesize()
IDLE_BLOCKS = 6
"""A thread's blocks of text, ids and payload, of several sizes."""
WARM_BYTES = 54 << 20
"""Tables of pieces, and blocks that are done, of a process whose memory matters."""
LEAST_IDLE_BYTES, MOST_IDLE_BYTES = 4 << 20, 16 << 20
"""Of the latter."""


def num_cores() -> int:
    """Physical cores among the processors this process may run on, within its cgroup's quota."""
    cpus = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))
    cores = {_core_of(cpu) for cpu in cpus}
    quota = _cpu_quota()
    return max(1, min(len(cores), quota if quota is not None else len(cores)))


def keep_memory() -> None:
    """Let freed memory of this process be used again rather than given back: many threads that take and give
    back megabytes wait for one another in the system."""
    import ctypes

    with suppress(AttributeError, OSError):  # another C library than glibc
        set_option = ctypes.CDLL(None).mallopt
        set_option(-3, 32 << 20)  # M_MMAP_THRESHOLD, at most this
        set_option(-1, 1 << 30)  # M_TRIM_THRESHOLD
        set_option(-2, 64 << 20)  # M_TOP_PAD


def keep_blocks(num_threads: int, block_bytes: int) -> None:
    """Let so many threads that work on blocks of a size at once use memory of blocks that are done."""
    _native.limit_idle_blocks(num_threads * IDLE_BLOCKS * block_bytes)


def keep_few_blocks() -> None:
    """Let a process that is one of several, or whose memory matters, keep little memory of blocks."""
    _native.limit_idle_blocks(MOST_IDLE_BYTES)


def keep_what_is_left(table_bytes: int) -> None:
    """Let a process whose tables of pieces hold so much keep fewer blocks that are done, the larger they are:
    its memory then grows little after the first hundred megabytes of text."""
    left = WARM_BYTES - table_bytes
    _native.limit_idle_blocks(min(max(left, LEAST_IDLE_BYTES), MOST_IDLE_BYTES))


def available_memory() -> int:
    """Bytes that can be used before the machine or the cgroup runs out."""
    available = _meminfo("MemAvailable")
    if available is None:
        available = os.sysconf("SC_PHYS_PAGES") * PAGE_BYTES // 2
    for limit, used in _cgroup_memory():
        available = min(available, max(0, limit - used))
    return available


def memory_limit() -> int | None:
    """Bytes that the container may hold in all; None where nothing but the machine limits it."""
    return min((limit for limit, _ in _cgroup_memory()), default=None)


def resident_bytes(pid: int | None = None) -> int:
    """Memory a process holds now, or 0 where it is gone or the system does not say."""
    try:
        fields = Path(f"/proc/{pid or 'self'}/statm").read_bytes().split()
        return int(fields[1]) * PAGE_BYTES
    except (OSError, IndexError, ValueError):
        return 0


def private_bytes(pid: int) -> int:
    """Of it, what it has in common with no file and no other process."""
    try:
        fields = Path(f"/proc/{pid}/statm").read_bytes().split()
        return (int(fields[1]) - int(fields[2])) * PAGE_BYTES
    except (OSError, IndexError, ValueError):
        return 0


def give_back_memory() -> None:
    """Let the system have what the allocators keep and nobody uses: with threads that is much."""
    import ctypes

    _native.drop_idle_blocks()
    with suppress(OSError, AttributeError):  # an allocator without the call
        ctypes.CDLL(None).malloc_trim(0)


def forget_peak() -> None:
    """Let `peak_resident_bytes` begin anew, where the system can."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_bytes(b"5")


def peak_resident_bytes() -> int:
    """The most memory this process has held since `forget_peak`."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _core_of(cpu: int) -> tuple[str, str] | int:
    """Processors of one core share it; where the system does not say, each counts."""
    topology = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology")
    try:
        return (topology / "physical_package_id").read_text(), (topology / "core_id").read_text()
    except OSError:
        return cpu


def _cpu_quota() -> int | None:
    """Whole cores a cgroup grants, rounded up."""
    for folder in _cgroup_folders():
        text = _read(folder / "cpu.max")
        if text and not text.startswith("max"):
            quota, period = map(int, text.split())
            return max(1, -(-quota // period))
    for folder in _cgroup_folders("cpu"):
        quota_v1, period_v1 = _read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us")
        if quota_v1 and period_v1 and int(quota_v1) > 0:
            return max(1, -(-int(quota_v1) // int(period_v1)))
    return None


def _cgroup_memory() -> list[tuple[int, int]]:
    """Limit and use of each cgroup round this process that limits memory; its page cache is not use."""
    found = []
    for folder in _cgroup_folders():
        limit, used = _read(folder / "memory.max"), _read(folder / "memory.current")
        if limit and used and limit != "max":
            found.append((int(limit), int(used) - _cached(folder / "memory.stat", "inactive_file")))
    for folder in _cgroup_folders("memory"):
        limit, used = _read(folder / "memory.limit_in_bytes"), _read(folder / "memory.usage_in_bytes")
        if limit and used and int(limit) < 1 << 60:
            found.append((int(limit), int(used) - _cached(folder / "memory.stat", "total_inactive_file")))
    return found


def _cgroup_folders(controller: str = "") -> list[Path]:
    """Folders of the unified cgroup tree, or of one controller's in version 1, from this process's own up to
    the root."""
    root = Path("/sys/fs/cgroup") / controller
    text = _read(Path("/proc/self/cgroup")) or ""
    named = (line.split(":", 2)[1:] for line in text.splitlines() if line.count(":") >= 2)
    name = next((path for names, path in named if controller in names.split(",")), "/")
    own = root / name.strip("/")
    return [own, *(parent for parent in own.parents if parent == root or root in parent.parents)]


def _cached(path: Path, key: str) -> int:
    for line in (_read(path) or "").splitlines():
        name, _, value = line.partition(" ")
        if name == key:
            return int(value)
    return 0


def _meminfo(key: str) -> int | None:
    for line in (_read(Path("/proc/meminfo")) or "").splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) * 1024
    return None


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None
