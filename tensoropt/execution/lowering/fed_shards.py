"""Shards of the values that a script feeds, one for each rank."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import tensorflow as tf

from tensoropt.errors import FeedError
from tensoropt.execution.lowering.microbatches import whole_region
from tensoropt.execution.world.shares import Share
from tensoropt.execution.world.world import World
from tensoropt.graph.operator import Graph, Operator, TensorName
from tensoropt.parallel.configuration import output_slot
from tensoropt.parallel.layout import Layout
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.sparse import known_shape
from tensoropt.parallel.strategy import Strategy, derivation_of, loader_configuration
from tensoropt.transformations.microbatches.step_graph import MICROBATCH

__all__ = ["FedShards", "fed_shards"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True, eq=False)
class FedShards:
    """The shards of a fed value on the ranks emitted here.

    Attributes:
        operator: the fed operator, or a microbatch of it.
        placeholders: a placeholder for each rank's shard.
        regions: the region of the value that each rank's shard is.
        shared_axes: the mesh axes along which ranks have the same shard. The first rank along these
            axes sends its shard to the other ranks.
        world: the ranks.
    """

    operator: Operator
    placeholders: tuple[tf.Tensor, ...]
    regions: tuple[tuple[slice, ...], ...]
    shared_axes: tuple[int, ...]
    world: World

    @property
    def name(self) -> str:
        """The script's name of the fed operator."""
        return self.operator.script_name

    @property
    def kind_of_rows(self) -> tuple[Hashable, ...]:
        """Equal for fed values of which this process reads the same rows, at any size.

        Only the first dimension of a batch is split, and texts are not split.
        """
        operator = self.operator
        is_text = operator.outputs[0].dtype == "string"
        return id(self.world), operator.attributes.get(MICROBATCH), is_text

    def cut(self, value: Array | Share) -> list[Array]:
        """Return the shards of a whole value, or of this process's rows of it.

        A shard that another rank sends is empty memory if this process does not have its rows.

        Raises:
            FeedError: if this process lacks rows that it reads.
        """
        parts = [value.part(r) if isinstance(value, Share) else value[r] for r in self.regions]
        if any(part is None for part in parts) and self.world.sends(self.shared_axes):
            assert isinstance(value, Share)
            raise FeedError(
                "a share has the rows of the batch that its rank reads. Got rows "
                f"{value.rows.tolist()} of {value.size} for {self.name!r} on a rank that reads "
                f"{_ranges(self.regions)}; take the shares of tensoropt.in_shares, or feed the "
                "whole batch on every rank."
            )
        return [
            _unset(region, value.shape, value.dtype)
            if part is None
            else np.asarray(part, value.dtype, order="C")
            for region, part in zip(self.regions, parts, strict=True)
        ]

    def rows_at(self, size: int, is_batch: bool = True) -> list[tuple[int, int]]:
        """Return the rows of a value that this process reads, if the value has ``size`` rows.

        A batch is split over the ranks in the same way whatever the plan
        (`tensoropt.parallel.strategy.loader_configuration`).
        """
        operator, world = self.operator, self.world
        count = cast("tuple[int, int, int]", operator.attributes.get(MICROBATCH, (0, 0, 1)))[2]
        if not size or size % count:
            return []
        (spec,) = operator.outputs
        spec = replace(spec, shape=(size // count, *spec.shape[1:]))
        operator = replace(operator, outputs=(spec,))
        derivation = derivation_of(operator)
        configuration = loader_configuration(derivation, world.mesh, is_batch)
        layout = output_slot(derivation, configuration, 0).forward
        if not world.sends(_shared_axes(layout, world.mesh)):
            return []
        return _ranges(_regions(layout, operator, world))


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
    for name, of_ranks in placeholders.items():
        layout = strategy.output_slot(TensorName(name, 0)).forward
        operator = graph[name]
        shared = _shared_axes(layout, world.mesh)
        regions = _regions(layout, operator, world)
        fed[name] = FedShards(operator, tuple(of_ranks), regions, shared, world)
    return fed


def _shared_axes(layout: Layout, mesh: Mesh) -> tuple[int, ...]:
    return tuple(axis for axis in range(len(mesh.axes)) if axis not in layout.axes)


def _regions(layout: Layout, operator: Operator, world: World) -> tuple[tuple[slice, ...], ...]:
    """Return the region of a fed value on each rank emitted here."""
    shape = operator.outputs[0].shape
    local = (_region(layout, shape, world.mesh, rank) for rank in world.ranks)
    return tuple(whole_region(operator, region) for region in local)


def _region(layout: Layout, shape: Sequence[int], mesh: Mesh, rank: int) -> tuple[slice, ...]:
    """Return a device's region of a fed value. Dimensions that only the feed decides are whole."""
    known = layout.region(known_shape(shape), mesh, rank)
    pairs = zip(known, shape, strict=True)
    return tuple(slice(None) if extent < 0 else part for part, extent in pairs)


def _ranges(regions: Sequence[tuple[slice, ...]]) -> list[tuple[int, int]]:
    """Return the rows of regions of a batch of a known size."""
    return [(region[0].start, region[0].stop) for region in regions]


def _unset(region: Sequence[slice], shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
    """Return memory for a region of a value."""
    extents = [len(range(*part.indices(n))) for part, n in zip(region, shape, strict=True)]
    return np.full(extents, b"", object) if dtype.hasobject else np.empty(extents, dtype)
