"""``tensoropt clusters``: list, show, dump and make descriptions of clusters."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click

from tensoropt.cli.clusters.make import make
from tensoropt.cli.command import (
    Answer,
    Command,
    Group,
    check_folder,
    complete_cluster,
    write_answer,
)
from tensoropt.cost.cluster import Cluster, cluster_names, load_cluster
from tensoropt.json_files import write_json
from tensoropt.plan.amounts import bytes_of, quantity_of
from tensoropt.report.cluster_links import links_line
from tensoropt.report.text_table import Report, table

__all__ = ["ClusterEntry", "ClusterList", "clusters"]


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


_NAME = click.argument("name", metavar="NAME_OR_PATH", shell_complete=complete_cluster)


@click.group(cls=Group, invoke_without_command=True)
@click.pass_context
def clusters(ctx: click.Context) -> None:
    """List, show, dump or make clusters; their names and files are for --cluster."""
    if ctx.invoked_subcommand is None:
        write_answer(_list(), as_json=False)


@clusters.command("list", cls=Command, answer=ClusterList)
def _listed() -> Answer:
    """List the clusters that come with TensorOpt."""
    return _list()


@clusters.command("show", cls=Command, answer=Cluster)
@_NAME
def _show(name: str) -> Answer:
    """Show a cluster: its devices, links, rates and their sources."""
    cluster = load_cluster(name)
    return Answer(cluster, _parts(cluster))


@clusters.command("dump", cls=Command)
@_NAME
@click.option(
    *("--output", "file"),
    metavar="CLUSTER.json",
    type=click.Path(path_type=Path),
    help="Write the file here instead of to standard output.",
)
def _dump(name: str, file: Path | None) -> Answer:
    """Write a cluster's file, as a template for a file of your own."""
    cluster = load_cluster(name)
    if file is None:
        return Answer(cluster, (), as_json=True)
    check_folder("a cluster", file, "--output")
    write_json(file, cluster.to_json(), indent=2)
    return Answer(cluster, (f"written to {file}; change it, and give it by --cluster {file}",))


clusters.add_command(make)


def _list() -> Answer:
    header = ["name", "devices", "memory of one (GiB)", "description"]
    entries = tuple(_entry(name, load_cluster(name)) for name in cluster_names())
    shown = table(header, [_row(entry) for entry in entries], [False, False, True, False])
    return Answer(ClusterList(entries), (shown,))


def _row(entry: ClusterEntry) -> list[str]:
    if not entry.devices:  # a template: the machine determines number and size
        return [entry.name, "as found", "as found", entry.description]
    counts = " x ".join(map(str, entry.counts))
    memory = f"{entry.memory_bytes / 2**30:.1f}"
    return [entry.name, f"{counts} {entry.device}", memory, entry.description]


def _parts(cluster: Cluster) -> tuple[Report | str, ...]:
    device = cluster.device
    rates = [[dtype, quantity_of(rate / 1e12)] for dtype, rate in device.peak_flops_per_second]
    shares = [[family, f"{share:.0%}"] for family, share in device.efficiency]
    count = "as many as a job has" if cluster.devices is None else f"{cluster.devices:,}"
    return (
        f"{cluster.name}: {cluster.description}\n",
        f"devices: {count}, {device.name} with {bytes_of(device.memory_bytes)}, "
        f"{device.memory_bandwidth_bytes_per_second / 1e9:,.0f} GB/s to it",
        f"links: {links_line(cluster)}\n",
        table(["numbers", "peak (TFLOP/s)"], rates, [False, True]),
        "",
        table(["operators", "of the peak"], shares, [False, True]),
        "",
        *(f"source: {source}" for source in cluster.sources),
    )
