"""The levels of links of a cluster, in words."""

from __future__ import annotations

from tensoropt.cost.cluster import Cluster, Level

__all__ = ["links_line"]


def links_line(cluster: Cluster) -> str:
    """Return the levels of links: ``2 machines (117.0 MB/s, 81 us), 2 ranks in each (...)``.

    Levels of one group have no links. The result is empty without links.
    """
    linked = [level for level in cluster.levels if level.count != 1]
    texts = [_level(level) for level in linked]
    inner = [text.replace(" (", " in each (", 1) for text in texts[1:]]
    return ", ".join([*texts[:1], *inner])


def _level(level: Level) -> str:
    groups = "any number of" if level.count is None else f"{level.count:,}"
    megabytes, microseconds = level.bandwidth_bytes_per_second / 1e6, level.latency_seconds * 1e6
    beside = ", beside computation" if level.processor_bytes_per_second else ""
    return f"{groups} {level.name}s ({megabytes:,.1f} MB/s, {microseconds:,.0f} us{beside})"
