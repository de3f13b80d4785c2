"""``tensoropt clusters``: list the clusters that can be planned for."""

from __future__ import annotations

import click

from tensoropt.cli.command import Command
from tensoropt.cost.cluster import Cluster, cluster_names, load_cluster
from tensoropt.report.text_table import table, write

__all__ = ["clusters"]


@click.command(cls=Command)
def clusters() -> None:
    """List the clusters that come with TensorOpt; their names are for --cluster."""
    header = ["name", "devices", "memory of one (GiB)", "description"]
    rows = [_row(name, load_cluster(name)) for name in cluster_names()]
    write(table(header, rows, [False, False, True, False]))


def _row(name: str, cluster: Cluster) -> list[str]:
    if cluster.devices is None:  # a template: the machine determines number and size
        return [name, "as found", "as found", _first_sentence(cluster)]
    counts = " x ".join(str(level.count) for level in cluster.levels)
    memory = f"{cluster.device.memory_bytes / 2**30:.1f}"
    return [name, f"{counts} {cluster.device.name}", memory, _first_sentence(cluster)]


def _first_sentence(cluster: Cluster) -> str:
    return cluster.description.split(". ")[0].rstrip(".")
