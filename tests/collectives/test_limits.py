"""A container's limits, as both versions of Linux's control groups write them."""

from __future__ import annotations

from pathlib import Path

import pytest

from collectives.limits import core_limit, memory_limit_bytes

# Files below the root: both versions, as seen on the machine and in a container. The group around
# the process's own may have the lower limit; a container sees its group as the topmost one.
TREES = {
    "version 2": {
        "proc/self/cgroup": "0::/jobs/one\n",
        "sys/fs/cgroup/jobs/cpu.max": "250000 100000\n",
        "sys/fs/cgroup/jobs/one/cpu.max": "max 100000\n",
        "sys/fs/cgroup/jobs/memory.max": "max\n",
        "sys/fs/cgroup/jobs/one/memory.max": "4294967296\n",
    },
    "version 1, in a container": {
        "proc/self/cgroup": "5:memory:/docker/1f\n4:cpu,cpuacct:/docker/1f\n0::/\n",
        "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "250000\n",
        "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": "4294967296\n",
    },
}


def written(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.mark.parametrize("tree", TREES)
def test_limits_are_read(tree: str, tmp_path: Path) -> None:
    root = written(tmp_path, TREES[tree])
    assert core_limit(root) == 2
    assert memory_limit_bytes(root) == 4 << 30


def test_no_limit_is_none(tmp_path: Path) -> None:
    assert core_limit(tmp_path) is None
    assert memory_limit_bytes(tmp_path) is None
    files = {
        "proc/self/cgroup": "1:cpu:/\n0::/\n",
        "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
        "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
    }
    assert core_limit(written(tmp_path, files)) is None


def test_less_than_a_core_is_one(tmp_path: Path) -> None:
    files = {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "50000 100000\n"}
    assert core_limit(written(tmp_path, files)) == 1
