"""The extents that a search may split into uneven pieces.

All extents would enlarge the space of graphs whose batch and widths divide evenly, for splits that
win nothing: images of 7 x 7, or three heads.
"""

from __future__ import annotations

from collections.abc import Collection

from tensoropt.graph.operator import Graph
from tensoropt.parallel.mesh import Mesh

__all__ = ["extents_in_proportion", "uneven_extents"]

_LEAST_PER_DEVICE = 16
"""Elements of a variable's dimension on each device. The largest piece is then at most a sixteenth
larger than the others."""


def uneven_extents(graph: Graph, mesh: Mesh, batch_placeholders: Collection[str]) -> frozenset[int]:
    """Return the extents of indices that may be split into uneven pieces.

    These are the batches, the extents in which they are joined with other dimensions, and the long
    dimensions of variables: rows of tables, widths and classes.

    Args:
        graph: the graph.
        mesh: the devices.
        batch_placeholders: placeholders whose first dimension is the batch.
    """
    joined = (extent for extent, _ in mesh.units)
    if mesh.shares is not None:
        return frozenset(mesh.shares.extents).union(joined)
    extents = extents_in_proportion(graph, mesh.size, batch_placeholders)
    return frozenset(extent for extent in extents if extent % mesh.size).union(joined)


def extents_in_proportion(
    graph: Graph, devices: int, batch_placeholders: Collection[str]
) -> frozenset[int]:
    """Return the extents that devices of different speeds may share in proportion.

    These are those of `uneven_extents`, and those that the devices divide.
    """
    extents = set()
    for operator in graph:
        shape = operator.outputs[0].shape if operator.outputs else ()
        if operator.is_variable:
            extents |= {extent for extent in shape if extent >= _LEAST_PER_DEVICE * devices}
        elif operator.name in batch_placeholders and shape:
            extents.add(shape[0])
    return frozenset(extent for extent in extents if extent > 1)
