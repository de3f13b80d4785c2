"""``tensoropt clusters``: list the clusters that can be planned for."""

from __future__ import annotations

import argparse

from tensoropt.cli.arguments import Subparsers
from tensoropt.cost.cluster import Cluster, cluster_names, load_cluster
from tensoropt.report.text_table import table

__all__ = ["add_parser"]


def add_parser(subparsers: Subparsers) -> None:
    """Add the subcommand's parser."""
    parser = subparsers.add_parser(
        "clusters",
        help="list the clusters that come with TensorOpt",
        description="List the clusters that come with TensorOpt; their names are for --cluster.",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Print one line per cluster."""
    del options
    header = ["name", "devices", "memory of one (GiB)", "description"]
    rows = [_row(name, load_cluster(name)) for name in cluster_names()]
    print(table(header, rows, [False, False, True, False]))


def _row(name: str, cluster: Cluster) -> list[str]:
    if cluster.devices is None:  # a template: the machine determines number and size
        return [name, "as found", "as found", _first_sentence(cluster)]
    counts = " x ".join(str(level.count) for level in cluster.levels)
    memory = f"{cluster.device.memory_bytes / 2**30:.1f}"
    return [name, f"{counts} {cluster.device.name}", memory, _first_sentence(cluster)]


def _first_sentence(cluster: Cluster) -> str:
    return cluster.description.split(". ")[0].rstrip(".")
