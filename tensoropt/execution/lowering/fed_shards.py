"""Shards of the values that a script feeds, one for each rank."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import tensorflow as tf

from tensoropt.execution.lowering.microbatches import whole_region
from tensoropt.execution.world.world import World
from tensoropt.graph.operator import Graph, TensorName
from tensoropt.parallel.layout import Layout
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.sparse import known_shape
from tensoropt.parallel.strategy import Strategy

__all__ = ["FedShards", "fed_shards"]


@dataclass(frozen=True, slots=True, eq=False)
class FedShards:
    """The shards of a fed value on the ranks emitted here.

    Attributes:
        name: the name of the fed operator.
        placeholders: a placeholder for each rank's shard.
        regions: the region of the value that each rank's shard is.
        shared_axes: the mesh axes along which ranks have the same shard. The first rank along these
            axes sends its shard to the other ranks.
        world: the ranks.
    """

    name: str
    placeholders: tuple[tf.Tensor, ...]
    regions: tuple[tuple[slice, ...], ...]
    shared_axes: tuple[int, ...]
    world: World


def fed_shards(
    placeholders: Mapping[str, Sequence[tf.Tensor]],
    graph: Graph,
    strategy: Strategy,
    world: World,
) -> dict[str, FedShards]:
    """Return the shards of fed values on the ranks emitted here, by fed operator.

    Args:
        placeholders: by fed operator, a placeholder for each rank.
        graph: the program's graph.
        strategy: a configuration for each operator.
        world: the ranks.
    """
    fed = {}
    mesh, ranks = world.mesh, world.ranks
    for name, of_ranks in placeholders.items():
        layout = strategy.output_slot(TensorName(name, 0)).forward
        operator = graph[name]
        shape = operator.outputs[0].shape
        local = (_region(layout, shape, mesh, rank) for rank in ranks)
        regions = tuple(whole_region(operator, region) for region in local)
        shared = tuple(axis for axis in range(len(mesh.axes)) if axis not in layout.axes)
        fed[name] = FedShards(operator.script_name, tuple(of_ranks), regions, shared, world)
    return fed


def _region(layout: Layout, shape: Sequence[int], mesh: Mesh, rank: int) -> tuple[slice, ...]:
    """Return a device's region of a fed value. Dimensions that only the feed decides are whole."""
    known = layout.region(known_shape(shape), mesh, rank)
    pairs = zip(known, shape, strict=True)
    return tuple(slice(None) if extent < 0 else part for part, extent in pairs)
