"""The paper's test bed: described clusters whose links and devices reach a part of their peak.

`links.json` has the efficiencies of links by level, and their sources. The paper publishes none.
Links between machines have two: one for collectives with one rank a machine and for all-to-alls,
one for flat rings through several ranks of a machine.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tensoropt.cost.cluster import Cluster, load_cluster
from tensoropt.cost.collective_time import Span, collective_seconds, spans
from tensoropt.cost.model import ClusterCostModel
from tensoropt.parallel.mesh import Mesh

__all__ = ["LINKS", "PaperCosts", "paper_cluster"]

LINKS = json.loads((Path(__file__).parent / "links.json").read_text(encoding="utf-8"))
"""The efficiencies of links, and their sources."""

_RINGS = frozenset({"allgather", "allreduce", "reduce_scatter"})


class PaperCosts(ClusterCostModel):
    """A cluster's costs, where rings over several ranks of several machines are flat.

    A hierarchy of m machines sends (m-1)/m of the bytes through each machine's card. One ring
    through all n ranks of the group sends (n-1)/n of them.

    Args:
        cluster: the cluster, as `paper_cluster` returns it.
        mesh: a mesh of the cluster.
        memory: name of the memory model.
    """

    __slots__ = ("_flat",)

    def __init__(self, cluster: Cluster, mesh: Mesh, memory: str = "paper") -> None:
        super().__init__(cluster, mesh, memory)
        self._flat: dict[tuple[int, ...], Sequence[Span]] = {}

    def network_seconds(
        self, kind: str, axes: tuple[int, ...], bytes_: int, runs: str = ""
    ) -> float:
        """See `ClusterCostModel`."""
        if kind not in _RINGS:
            return super().network_seconds(kind, axes, bytes_, runs)
        group = tuple(sorted(axes))
        if group not in self._flat:
            levels = spans(self.cluster, self.mesh, group)
            self._flat[group] = [_flat(level) for level in levels]
        return collective_seconds(kind, self._flat[group], bytes_)


def _flat(level: Span) -> Span:
    """The level of links as a flat ring uses it."""
    if level.inside == 1 or not _is_between_machines(level):
        return level
    ranks = level.members * level.inside
    hierarchical, flat = (level.members - 1) / level.members, (ranks - 1) / ranks
    efficiency = LINKS["efficiency"]["machine"]
    slower = hierarchical / flat * efficiency["flat_ring"] / efficiency["one_rank"]
    return replace(level, all_bandwidth=level.all_bandwidth * slower)


def _is_between_machines(level: Span) -> bool:
    """Whether the devices of a unit share its link, as those of a machine share its card."""
    return level.all_bandwidth < level.one_bandwidth


def paper_cluster(cluster: str, links: float = 1.0) -> Cluster:
    """A cluster by name, whose links between machines are as fast as for one rank a machine.

    Args:
        cluster: one of `tensoropt.cost.cluster.cluster_names`.
        links: factor by which all links are faster.
    """
    peak = load_cluster(cluster)
    share = LINKS["efficiency"] | {"machine": LINKS["efficiency"]["machine"]["one_rank"]}
    levels = tuple(
        replace(
            level,
            bandwidth_bytes_per_second=level.bandwidth_bytes_per_second * share[level.name] * links,
        )
        for level in peak.levels
    )
    return replace(peak, levels=levels, sources=(*peak.sources, *LINKS["sources"]))
