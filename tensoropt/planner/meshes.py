"""The meshes on which a graph is searched: one with all prime axes, or several with fewer axes."""

from __future__ import annotations

from dataclasses import replace

from tensoropt.cost.bandwidth_table import BandwidthTable
from tensoropt.cost.cluster import Cluster
from tensoropt.graph.operator import Graph
from tensoropt.parallel.mesh import Mesh
from tensoropt.search.multilevel.refinement import Refinement, most_axes, refinements

__all__ = ["cluster_on", "meshes_of"]


def meshes_of(graph: Graph, cluster: Cluster, devices: int) -> tuple[Refinement, ...]:
    """Return the meshes on which strategies of a graph are searched, the coarsest first.

    If all prime axes can be searched at once (`most_axes`), there is one mesh with all of them.

    Raises:
        LayoutError: if the cluster cannot give a job this number of devices.
    """
    whole = cluster.mesh(devices)
    rank = max((len(spec.shape) for operator in graph for spec in operator.outputs), default=0)
    most = most_axes(rank)
    if len(whole.axes) <= most:
        return (Refinement(whole),)
    return refinements(cluster.level_counts(devices), most)


def cluster_on(cluster: Cluster, mesh: Mesh) -> Cluster:
    """Return the cluster with its measured bandwidths for the axes of a coarser mesh.

    Bandwidths over a part of one of its axes are left out.
    """
    tables = tuple(
        on_mesh
        for table in cluster.measured
        if (on_mesh := table if table.mesh == mesh.axes else _on(table, mesh)) is not None
    )
    return cluster if tables == cluster.measured else replace(cluster, measured=tables)


def _on(table: BandwidthTable, mesh: Mesh) -> BandwidthTable | None:
    """Return a table for the axes of the mesh; None if it is over a part of one of its axes."""
    axes: list[int] = []
    fine = 0
    for axis, size in enumerate(mesh.axes):
        begin, reached = fine, 1
        while reached < size and fine < len(table.mesh):
            reached *= table.mesh[fine]
            fine += 1
        used = [part in table.axes for part in range(begin, fine)]
        if reached != size or any(used) != all(used):
            return None
        if any(used):
            axes.append(axis)
    return replace(table, mesh=mesh.axes, axes=tuple(axes)) if fine == len(table.mesh) else None
