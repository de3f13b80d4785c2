"""The limits that a container sets to the processor time and the memory of its processes.

Docker, Kubernetes and batch systems set them by Linux's control groups. The system's own numbers of
cores and bytes are those of the whole machine.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

__all__ = ["core_limit", "memory_limit_bytes", "usable_memory_bytes"]

_MOUNT = "sys/fs/cgroup"


def core_limit(root: Path = Path("/")) -> int | None:
    """Return the number of whole cores whose time this process and those in its container may take.

    Args:
        root: folder with the folders proc and sys.

    Returns:
        The least limit of the control group and of its parents, at least 1; None without any.
    """
    quotas = [_quota(folder) for folder in _groups(root, "cpu")]
    return min((max(1, int(quota)) for quota in quotas if quota is not None), default=None)


def memory_limit_bytes(root: Path = Path("/")) -> int | None:
    """Return the memory that this process and those in its container may take.

    Without a limit it is None in version 2 of control groups, and a number larger than any
    machine's memory in version 1.
    """
    texts = [
        _text(folder / name)
        for folder in _groups(root, "memory")
        for name in ("memory.max", "memory.limit_in_bytes")
    ]
    return min((int(text) for text in texts if text.isdigit()), default=None)


def usable_memory_bytes(root: Path = Path("/")) -> int:
    """Return the memory of this machine, or the limit of this process's container if it is less."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = memory_limit_bytes(root)
    return machine if limit is None else min(machine, limit)


def _groups(root: Path, controller: str) -> Iterator[Path]:
    """Yield the folders of this process's control group and of its parents.

    A container may see its group's path on the machine, while only its own group's files are
    mounted. So a folder need not exist.
    """
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        top = root / _MOUNT / (controller if controllers else "")  # version 2 has one tree
        group = top / path.lstrip("/")
        yield from (folder for folder in (group, *group.parents) if folder.is_relative_to(top))


def _quota(folder: Path) -> float | None:
    """Return the number of cores whose time a group may take; None without a limit."""
    fields = _text(folder / "cpu.max").split()
    fields = fields or [_text(folder / name) for name in ("cpu.cfs_quota_us", "cpu.cfs_period_us")]
    limited = all(field.isdigit() for field in fields)
    return int(fields[0]) / int(fields[1]) if limited else None


def _text(path: Path) -> str:
    """Return the text of a file without surrounding space; nothing if there is no such file."""
    return path.read_text("utf-8").strip() if path.is_file() else ""
