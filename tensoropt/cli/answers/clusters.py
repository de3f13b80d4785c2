"""The answer of ``tensoropt clusters list``."""

from __future__ import annotations

from dataclasses import dataclass

from tensoropt.cost.cluster import Cluster, cluster_names, load_cluster

__all__ = ["ClusterEntry", "ClusterList", "cluster_list"]


@dataclass(frozen=True, slots=True)
class ClusterEntry:
    """A cluster that comes with TensorOpt.

    Attributes:
        name: its name, for ``--cluster``.
        devices: number of devices; 0 for a template, where the job gives it.
        counts: number of groups of each level of links, the outermost first; empty for a template.
        device: the device's name.
        memory_bytes: memory of a device.
        description: the first sentence of its description.
    """

    name: str
    devices: int
    counts: tuple[int, ...]
    device: str
    memory_bytes: int
    description: str


@dataclass(frozen=True, slots=True)
class ClusterList:
    """The clusters that come with TensorOpt.

    Attributes:
        clusters: an entry for each, in the order of their names.
    """

    clusters: tuple[ClusterEntry, ...]


def cluster_list() -> ClusterList:
    """The clusters that come with TensorOpt."""
    return ClusterList(tuple(_entry(name, load_cluster(name)) for name in cluster_names()))


def _entry(name: str, cluster: Cluster) -> ClusterEntry:
    counts = tuple(level.count for level in cluster.levels if level.count is not None)
    return ClusterEntry(
        name,
        cluster.devices or 0,
        counts if cluster.devices else (),
        cluster.device.name,
        cluster.device.memory_bytes,
        cluster.description.split(". ")[0].rstrip("."),
    )
