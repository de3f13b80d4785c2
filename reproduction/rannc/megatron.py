"""Megatron-LM's splits of a BERT (Shoeybi et al. 2019), priced like stages, without microbatches.

Heads, the hidden width of feed-forward sublayers and the vocabulary are split over t devices. Sums,
normalisations and the outputs of layers are whole on each of the t devices. Replicas of such
groups, each with its share of the batch, add up gradients. Like the version in RaNNC's comparison,
this one does not accumulate gradients. It may compute layers again in the backward pass.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from tensoropt.arrays import BoolArray, Int64Array
from tensoropt.errors import InfeasibleError
from tensoropt.graph.operator import TensorName
from tensoropt.pipeline.atom_costs import AtomCosts
from tensoropt.pipeline.links import Links

__all__ = ["HANDED_ON", "TensorSplit", "is_split", "megatron", "states_of"]

# The tensors of a layer that every device has whole; and the tensors outside of layers that the
# vocabulary splits.
_WHOLE = re.compile(r"/layer\d+/(attended/|fed_forward/|add_1$|add_3$|second/add$)")
_VOCABULARY = re.compile(r"^bert/einsum/|^SparseSoftmax")
HANDED_ON = "bert/layer1/fed_forward/add_1"
"""The tensor that a layer hands on."""


@dataclass(frozen=True, slots=True)
class TensorSplit:
    """Splits of tensors on all devices.

    Attributes:
        parts: number of devices of one replica.
        recompute: whether layers keep only their inputs.
        time: nanoseconds of a step.
        memory: bytes of a device.
    """

    parts: int
    recompute: bool
    time: int
    memory: int


def megatron(
    costs: AtomCosts, layer: Int64Array, links: Links, machines: int, memory_limit: int
) -> TensorSplit:
    """The fastest split with a power of two of devices for one replica, with or without
    recomputation.

    Args:
        costs: costs of a BERT's components for the whole batch.
        layer: int64[atoms], the layer of each component.
        links: links of the machines.
        machines: number of machines.
        memory_limit: bytes of a device.

    Raises:
        InfeasibleError: if no split fits the memory.
    """
    devices = machines * links.machine
    found, parts = list[TensorSplit](), 1
    while parts <= devices:
        for again in (False, True):
            found.append(_split(costs, layer, links, devices, parts, again))
        parts *= 2
    fitting = [each for each in found if each.memory <= memory_limit]
    if not fitting:
        least = min(each.memory for each in found)
        raise InfeasibleError(
            f"splits of tensors fit {memory_limit} bytes of each device. Got {least} at least; use "
            "more devices or a smaller batch."
        )
    return min(fitting, key=lambda each: each.time)


def _split(
    costs: AtomCosts, layer: Int64Array, links: Links, devices: int, parts: int, again: bool
) -> TensorSplit:
    batch = costs.growth.examples
    own, group = batch // devices, batch * parts // devices  # numbers of examples
    split = is_split(costs)

    def chosen(at_own: Int64Array, at_group: Int64Array) -> Int64Array:
        return np.where(split, at_own, at_group)

    # A task on a part of its width takes as long as on that part of the examples.
    forward, backward, transient, _ = map(chosen, costs.at(own), costs.at(group))
    saved = np.zeros(int(layer.max()) + 1, dtype=np.int64)
    np.add.at(saved, layer, chosen(costs.saved_at(own), costs.saved_at(group)))
    handed = costs.growth.tensor_bytes(TensorName(HANDED_ON, 0), group)
    held, gradients, updates = states_of(costs, split, parts)
    layers = len(saved)
    passed = links.allreduce_nanoseconds(handed, parts, 1)  # twice for each layer and pass
    time = int(forward.sum() * (1 + again) + backward.sum()) + updates
    time += passed * (2 * layers * (2 + again) + 2)
    time += links.allreduce_nanoseconds(
        gradients, max(1, links.machine // parts), devices // max(parts, links.machine)
    )
    kept = layers * handed + int(saved.max()) if again else int(saved.sum())
    return TensorSplit(parts, again, time, held + kept + int(transient.max()))


def is_split(costs: AtomCosts) -> BoolArray:
    """bool[atoms], whether Megatron-LM splits a component of a BERT."""
    names = [atom.operator for atom in costs.atoms.atoms]
    return np.array(
        [
            _WHOLE.search(name) is None if "/layer" in name else bool(_VOCABULARY.search(name))
            for name in names
        ]
    )


def states_of(
    costs: AtomCosts, split: BoolArray, parts: int, of: BoolArray | None = None
) -> tuple[int, int, int]:
    """Bytes of variables, slots and gradients on a device; the bytes of gradients among these;
    and nanoseconds of updates.

    Args:
        costs: costs of the components.
        split: bool[atoms], whether a component is split.
        parts: number of devices that split it.
        of: bool[atoms], the components that count; each state counts with its first. None for all.
    """
    atoms = costs.atoms
    held = gradients = updates = 0
    for name, state in atoms.states.items():
        if of is not None and not of[min(state.atoms)]:
            continue
        over = parts if any(split[place] for place in state.atoms) else 1
        variables, gradient = costs.state_bytes(name)
        took = sum(
            costs.operator_time(each, costs.growth.examples).forward for each in state.updates
        )
        held += (variables + gradient) // over
        gradients += gradient // over
        updates += took // over
    return held, gradients, updates
