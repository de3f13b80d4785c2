"""The memory that an operator between two collectives reads and writes, by the size of caches."""

from __future__ import annotations

import re
from pathlib import Path

from collectives.group import Group

__all__ = ["between_elements", "last_cache_bytes"]

_BETWEEN_CACHES = 1.0
"""Memory that the operators between two collectives read and write, summed over all ranks of a
machine, as a multiple of the machine's last-level cache. With 1.0 a collective finds its input in
the cache and little else, as in a training step. On a machine with a cache of 32 MiB, collectives
are 15 % faster than in steps with 0.8, and 15 % slower with 1.1."""
_LEAST_BETWEEN, _MOST_BETWEEN = 1 << 20, 1 << 25
"""Bounds of the bytes that are read."""
_USUAL_CACHE = 1 << 25
"""Bytes of the cache of a machine that does not say its size."""
_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")


def between_elements(everyone: Group) -> int:
    """Return the float32 elements that the operator between two collectives reads and writes."""
    bytes_ = _BETWEEN_CACHES * last_cache_bytes() / (2 * everyone.hosts.count(everyone.host))
    return round(min(max(bytes_, _LEAST_BETWEEN), _MOST_BETWEEN)) // 4


def last_cache_bytes() -> int:
    """Return the bytes of the first core's last-level cache, as Linux tells them."""
    sizes = [
        int(found.group(1)) << (10 if found.group(2) == "K" else 20)
        for path in _CACHES.glob("index*/size")
        if (found := re.fullmatch(r"(\d+)([KM])\s*", path.read_text()))
    ]
    return max(sizes, default=_USUAL_CACHE)
