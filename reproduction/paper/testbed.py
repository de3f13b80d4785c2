"""The paper's test bed: described clusters whose links and devices reach a part of their peak.

`links.json` has the efficiencies of links by level, and their sources. The paper publishes none.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from tensoropt.cost.cluster import Cluster, load_cluster

__all__ = ["LINKS", "paper_cluster"]

LINKS = json.loads((Path(__file__).parent / "links.json").read_text(encoding="utf-8"))
"""The efficiencies of links, and their sources."""


def paper_cluster(cluster: str, links: float = 1.0) -> Cluster:
    """A cluster by name.

    Args:
        cluster: one of `tensoropt.cost.cluster.cluster_names`.
        links: factor by which all links are faster.
    """
    peak = load_cluster(cluster)
    levels = tuple(
        replace(
            level,
            bandwidth_bytes_per_second=level.bandwidth_bytes_per_second
            * LINKS["efficiency"][level.name]
            * links,
        )
        for level in peak.levels
    )
    return replace(peak, levels=levels, sources=(*peak.sources, *LINKS["sources"]))
