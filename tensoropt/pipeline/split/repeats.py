"""Repeated layers of a step: equal runs of components that follow each other."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np

from tensoropt.graph.operator import TensorName
from tensoropt.pipeline.atom_costs import AtomCosts

__all__ = ["Repeats", "repeats"]

_LONGEST = 2048  # the most components of a layer
_FEWEST = 4  # the fewest layers: with three, a sample would leave none out


@dataclass(frozen=True, slots=True)
class Repeats:
    """Equal layers, in the components ``start`` to ``start + length * count``.

    A sample keeps the first, the second and the last layer. The second stands for all layers
    between the first and the last.

    Attributes:
        start: the first component of the first layer.
        length: the components of a layer.
        count: the number of layers; 0 if no layers repeat.
    """

    start: int
    length: int
    count: int

    def stand_in(self, place: int) -> int:
        """Return the component that stands for another one in a sample.

        It is the component itself, or the corresponding one of the second layer.
        """
        layer = self.layer(place)
        if layer is None or layer in (0, self.count - 1):
            return place
        return self.start + self.length + (place - self.start) % self.length

    def layer(self, place: int) -> int | None:
        """Return the number of the layer of a component; None if it is in none."""
        if not self.start <= place < self.start + self.length * self.count:
            return None
        return (place - self.start) // self.length

    def like(self, place: int) -> int:
        """Return the corresponding component of the first layer; itself if it is in no layer."""
        if self.layer(place) is None:
            return place
        return self.start + (place - self.start) % self.length


def repeats(costs: AtomCosts) -> Repeats:
    """Return the longest run of equal layers, in the order of the components.

    Two components correspond if they cost the same, hold states of equal sizes, and read the same
    tensor, or tensors of components that correspond, in their own layers or the layers before.
    The length of a layer is the distance at which most components cost the same.
    """
    classes = np.array([costs.alike(place) for place in range(len(costs.atoms))])
    longest = min(_LONGEST, len(classes) // _FEWEST)
    if longest < 1:
        return Repeats(0, 1, 0)
    same = [int((classes[:-n] == classes[n:]).sum()) for n in range(1, longest + 1)]
    length = 1 + int(np.argmax(same))
    repeated = _Repeated(costs, length)
    start = end = 0
    begun = None
    for place in range(len(classes) - length + 1):
        repeats_here = place < len(classes) - length and repeated(place)
        if repeats_here and begun is None:
            begun = place
        elif not repeats_here and begun is not None:
            if place - begun > end - start:
                start, end = begun, place
            begun = None
    count = (end - start) // length + 1
    return Repeats(start, length, count) if count >= _FEWEST else Repeats(0, 1, 0)


class _Repeated:
    """Tells whether a component corresponds to the one a layer later."""

    def __init__(self, costs: AtomCosts, length: int) -> None:
        self._costs, self._length = costs, length
        atoms = costs.atoms
        self._reads: list[list[tuple[int, TensorName | None]]] = [[] for _ in atoms.atoms]
        for maker, reader, tensor in atoms.edges:
            self._reads[reader].append((maker, tensor))

    def __call__(self, place: int) -> bool:
        later = place + self._length
        return self._key(place) == self._key(later) and self._reads_alike(place, later)

    def _key(self, place: int) -> Hashable:
        """Return a key that components share if they cost the same and hold equal states."""
        costs, atom = self._costs, self._costs.atoms.atoms[place]
        states = costs.atoms.states
        return (
            costs.alike(place),
            tuple(costs.growth.alike(name) for name in atom.constants),
            tuple(self._state_key(name) for name in atom.states if name in states),
            len(atom.states),
        )

    def _state_key(self, name: str) -> Hashable:
        """Return the name of a shared state; for others, the classes of their operators."""
        state = self._costs.atoms.states[name]
        if state.shared:
            return name
        groups = state.variables, state.gradients, state.updates
        return tuple(tuple(map(self._costs.growth.alike, group)) for group in groups)

    def _reads_alike(self, place: int, later: int) -> bool:
        reads, later_reads = self._reads[place], self._reads[later]
        return len(reads) == len(later_reads) and all(map(self._corresponds, reads, later_reads))

    def _corresponds(
        self, read: tuple[int, TensorName | None], later: tuple[int, TensorName | None]
    ) -> bool:
        """Whether two reads, each a maker and a tensor, are the same or a layer apart."""
        (maker, tensor), (later_maker, later_tensor) = read, later
        if read == later:
            return True
        if later_maker - maker != self._length:
            return False
        if tensor is None or later_tensor is None:
            return tensor is later_tensor
        return tensor.index == later_tensor.index
