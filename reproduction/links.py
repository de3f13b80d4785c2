"""Described clusters whose links are faster or slower than their description says."""

from __future__ import annotations

from dataclasses import replace

from tensoropt.cost.cluster import Cluster

__all__ = ["with_links"]


def with_links(cluster: Cluster, factor: float) -> Cluster:
    """The cluster with ``factor`` times the bandwidth of all links."""
    levels = tuple(
        replace(level, bandwidth_bytes_per_second=factor * level.bandwidth_bytes_per_second)
        for level in cluster.levels
    )
    return replace(cluster, levels=levels)
