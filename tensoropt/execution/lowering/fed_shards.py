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
    """How a fed value gets to the ranks emitted here.

    Attributes:
        name: the fed operator.
        placeholders: one on each rank.
        regions: of the value, one for each rank.
        shared_axes: the mesh axes along which ranks have the same shard; the first rank's is taken.
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
    """How each fed value gets to the ranks emitted here.

    Args:
        placeholders: by fed operator one on each rank.
        graph: the program's graph.
        strategy: how the program is parallelized.
        world: the ranks.
    """
    found = {}
    mesh, ranks = world.mesh, world.ranks
    for name, of_ranks in placeholders.items():
        layout = strategy.output_slot(TensorName(name, 0)).forward
        operator = graph[name]
        shape = operator.outputs[0].shape
        own = (_region(layout, shape, mesh, rank) for rank in ranks)
        regions = tuple(whole_region(operator, region) for region in own)
        shared = tuple(axis for axis in range(len(mesh.axes)) if axis not in layout.axes)
        found[name] = FedShards(operator.script_name, tuple(of_ranks), regions, shared, world)
    return found


def _region(layout: Layout, shape: Sequence[int], mesh: Mesh, rank: int) -> tuple[slice, ...]:
    """A device's part of a fed value; dimensions that only the feed decides are not split."""
    known = layout.region(known_shape(shape), mesh, rank)
    pairs = zip(known, shape, strict=True)
    return tuple(slice(None) if extent < 0 else part for part, extent in pairs)
