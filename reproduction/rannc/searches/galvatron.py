"""Galvatron's decision trees (Miao et al. 2022): each layer of a BERT has its own mixture of data,
sharded data and tensor parallelism, under a memory limit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np

from reproduction.rannc.megatron import HANDED_ON, is_split, states_of
from tensoropt.arrays import Float64Array, Int64Array
from tensoropt.errors import InfeasibleError
from tensoropt.graph.operator import TensorName
from tensoropt.pipeline.atom_costs import AtomCosts
from tensoropt.pipeline.links import Links

__all__ = ["LayerSplits", "galvatron", "least_path", "trees"]

_GRAINS = 256
"""Parts of the memory limit in which a layer's memory is counted, rounded up."""


@dataclass(frozen=True, slots=True)
class LayerSplits:
    """A tree for each layer, on all devices.

    Attributes:
        trees: of each layer; ways and devices from the root on: (("data", 4), ("tensor", 8)).
        microbatches: parts of the batch whose gradients are added up.
        time: nanoseconds of a step.
        memory: bytes of a device.
    """

    trees: tuple[Tree, ...]
    microbatches: int
    time: int
    memory: int


Tree = tuple[tuple[str, int], ...]


def trees(devices: int) -> Iterator[Tree]:
    """The decision trees of a stage (Galvatron, section 3.2).

    Each level of a tree is a way with a power of two of devices; no way comes twice, and data and
    sharded data parallelism exclude one another. The root has the slowest links.
    """
    for count in (1, 2):
        for ways in permutations(("data", "sharded", "tensor"), count):
            if {"data", "sharded"} <= set(ways):
                continue
            if count == 1:
                yield ((ways[0], devices),)
                continue
            outer = 2
            while outer < devices:
                yield (ways[0], outer), (ways[1], devices // outer)
                outer *= 2


def galvatron(
    costs: AtomCosts,
    layer: Int64Array,
    links: Links,
    machines: int,
    memory_limit: int,
    numbers_of_microbatches: Sequence[int] = (1, 2, 4, 8),
) -> LayerSplits:
    """The fastest trees of all layers that fit the memory (Galvatron, equation 3).

    State: (l, e), the first l layers in e parts of the memory, and the tree of the last. A layer
    pays its operators, its communication, and the change of layout from the layer before. Galvatron
    also cuts the model into stages, in equal parts, which GPipe's search here has; and it searches
    the size of the batch, where the number of microbatches is given here. O(L E T^2) for T trees.

    Args:
        costs: costs of a BERT's components for the whole batch.
        layer: int64[atoms], the layer of each component.
        links: links of the machines.
        machines: number of machines.
        memory_limit: bytes of a device.
        numbers_of_microbatches: those that are tried.

    Raises:
        InfeasibleError: if no trees fit the memory.
    """
    devices = machines * links.machine
    found = [
        own
        for count in numbers_of_microbatches
        if (own := _fastest(_Layers(costs, layer, links, devices, count), memory_limit)) is not None
    ]
    if not found:
        raise InfeasibleError(
            f"a tree of each layer fits {memory_limit} bytes of each device. Got none on {devices} "
            "devices; use more devices or a smaller batch."
        )
    return min(found, key=lambda each: each.time)


class _Layers:
    """Times and memories of all layers under all trees, and of changes between trees."""

    def __init__(
        self, costs: AtomCosts, layer: Int64Array, links: Links, devices: int, microbatches: int
    ) -> None:
        self.trees, self.microbatches = tuple(trees(devices)), microbatches
        examples = costs.growth.examples // microbatches
        layers, split = int(layer.max()) + 1, is_split(costs)
        columns = []
        for tree in self.trees:
            tensor = dict(tree).get("tensor", 1)
            sharded = dict(tree).get("sharded", 1)
            own, group = -(-examples // devices), -(-examples * tensor // devices)
            forward, backward, *needs = np.where(split, costs.at(own), costs.at(group))
            transient = needs[microbatches > 1]
            saved = np.where(split, costs.saved_at(own), costs.saved_at(group))
            time = np.bincount(layer, forward + backward, layers) * microbatches
            kept = np.bincount(layer, saved, layers)
            moved = costs.growth.tensor_bytes(TensorName(HANDED_ON, 0), group)
            time += 4 * microbatches * _all_reduce(links, tree, "tensor", moved)
            for number in range(layers):
                held, gradients, updates = states_of(costs, split, tensor, layer == number)
                again = _all_reduce(links, tree, "sharded", gradients)
                # Weights are gathered forward and backward, gradients scattered: half an all-reduce
                # each.
                time[number] += updates // sharded + microbatches * again * 3 / 2
                time[number] += _all_reduce(links, tree, "data", gradients)
                kept[number] += held // sharded
            columns.append((time, kept, transient.max()))
        self.time = np.array([time for time, _, _ in columns]).T  # [layers, trees]
        self.memory = np.array([kept for _, kept, _ in columns]).T
        self.transient = max(int(most) for _, _, most in columns)
        # If the degree of tensor parallelism changes, the values before are gathered or sliced.
        size = costs.growth.tensor_bytes(TensorName(HANDED_ON, 0), -(-examples // devices))
        parts = np.array([dict(tree).get("tensor", 1) for tree in self.trees])
        gathered = np.where(parts != parts[:, None], np.maximum(parts, parts[:, None]), 0)
        self.change = gathered * links.allreduce_nanoseconds(size, links.machine, 1) * microbatches


def _all_reduce(links: Links, tree: Tree, way: str, bytes_: int) -> int:
    """Nanoseconds of a sum over the devices of a level of a tree; 0 if it has no such level."""
    inside = 1
    for name, count in reversed(tree):
        if name == way:
            near = max(1, min(count, links.machine // inside)) if inside < links.machine else 1
            return links.allreduce_nanoseconds(bytes_, near, count // near)
        inside *= count
    return 0


def _fastest(of: _Layers, memory_limit: int) -> LayerSplits | None:
    """The trees of least time within the limit; None if none fit."""
    grain = max(1, (memory_limit - of.transient) // _GRAINS)
    sizes = -(-of.memory.astype(np.int64) // grain)
    chosen = least_path(of.time, sizes, of.change, _GRAINS)
    if chosen is None:
        return None
    layers = np.arange(len(chosen))
    time = of.time[layers, chosen].sum() + of.change[chosen[:-1], chosen[1:]].sum()
    memory = of.transient + int(of.memory[layers, chosen].sum())
    picked = tuple(of.trees[tree] for tree in chosen)
    return LayerSplits(picked, of.microbatches, round(float(time)), memory)


def least_path(
    time: Float64Array, size: Int64Array, change: Int64Array, most: int
) -> list[int] | None:
    """The choices of all layers with the least time whose sizes add up to at most ``most``; None if
    there are none.

    Args:
        time: float64[layers, choices].
        size: int64[layers, choices].
        change: int64[choices, choices], time between a layer's choice and the next one's.
        most: the limit.
    """
    layers, count = time.shape
    least = np.zeros((most + 1, count))  # [size so far, choice of the last layer]
    came = np.zeros((layers, most + 1, count), np.int64)
    for number in range(layers):
        before = least[:, :, None] + (change if number else np.zeros_like(change))
        way, value = before.argmin(axis=1), before.min(axis=1)
        least = np.full_like(least, np.inf)
        for own in np.flatnonzero(size[number] <= most).tolist():
            added = int(size[number, own])
            least[added:, own] = value[: most + 1 - added, own] + time[number, own]
            came[number, added:, own] = way[: most + 1 - added, own]
    place, own = (int(each) for each in np.unravel_index(int(least.argmin()), least.shape))
    if not np.isfinite(least[place, own]):
        return None
    chosen = []
    for number in range(layers - 1, -1, -1):
        chosen.append(own)
        place, own = place - int(size[number, own]), int(came[number, place, own])
    return chosen[::-1]
