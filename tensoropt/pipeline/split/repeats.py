"""Layers that repeat in a step: runs of components that do the same over and over."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np

from tensoropt.graph.operator import TensorName
from tensoropt.pipeline.atom_costs import AtomCosts

__all__ = ["Repeats", "repeats"]

_LONGEST = 2048  # components of a layer
_FEWEST = 4  # layers: with as many one is left out


@dataclass(frozen=True, slots=True)
class Repeats:
    """Components ``start`` to ``start + length * count`` are ``count`` layers that are alike.

    The first, the second and the last are kept; the second stands for all between. Without a
    repetition ``count`` is 0.
    """

    start: int
    length: int
    count: int

    def stand_in(self, place: int) -> int:
        """The component that stands for one: itself, or its like in the second layer."""
        layer = self.layer(place)
        if layer is None or layer in (0, self.count - 1):
            return place
        return self.start + self.length + (place - self.start) % self.length

    def layer(self, place: int) -> int | None:
        """Which of the layers a component is in; None if in none."""
        if not self.start <= place < self.start + self.length * self.count:
            return None
        return (place - self.start) // self.length

    def like(self, place: int) -> int:
        """Its like in the first layer; itself if it is in none."""
        return place if self.layer(place) is None else self._first(place)

    def _first(self, place: int) -> int:
        return self.start + (place - self.start) % self.length


def repeats(costs: AtomCosts) -> Repeats:
    """The longest run of layers that are alike, in the order of the components.

    Components are alike as far as they cost the same, hold states of equal sizes, and read alike:
    what the layer's own components, or those of the layer before, make at the same place, or the
    very same tensor. The number of components of a layer is that at which most components have
    their like.
    """
    alike = np.array([costs.alike(place) for place in range(len(costs.atoms))])
    longest = min(_LONGEST, len(alike) // _FEWEST)
    if longest < 1:
        return Repeats(0, 1, 0)
    same = [int((alike[:-n] == alike[n:]).sum()) for n in range(1, longest + 1)]
    length = 1 + int(np.argmax(same))
    found = _Likeness(costs, length)
    best = start = end = 0
    begun = None
    for place in range(len(alike) - length + 1):
        like = place < len(alike) - length and found(place)
        if like and begun is None:
            begun = place
        elif not like and begun is not None:
            if place - begun > best:
                best, start, end = place - begun, begun, place
            begun = None
    count = (end - start) // length + 1
    return Repeats(start, length, count) if count >= _FEWEST else Repeats(0, 1, 0)


class _Likeness:
    """Whether a component and that of one layer later are alike."""

    def __init__(self, costs: AtomCosts, length: int) -> None:
        self._costs, self._length = costs, length
        atoms = costs.atoms
        self._reads: list[list[tuple[int, TensorName | None]]] = [[] for _ in atoms.atoms]
        for maker, reader, tensor in atoms.edges:
            self._reads[reader].append((maker, tensor))

    def __call__(self, place: int) -> bool:
        return self._does(place) == self._does(place + self._length) and self._reads_alike(place)

    def _does(self, place: int) -> Hashable:
        costs, atom = self._costs, self._costs.atoms.atoms[place]
        known = costs.atoms.states
        return (
            costs.alike(place),
            tuple(costs.growth.alike(name) for name in atom.constants),
            tuple(self._state(name) for name in atom.states if name in known),
            len(atom.states),
        )

    def _state(self, name: str) -> Hashable:
        """What a state is like, or which it is where several components hold it."""
        state = self._costs.atoms.states[name]
        if state.shared:
            return name
        parts = state.variables, state.gradients, state.updates
        return tuple(tuple(self._costs.growth.alike(each) for each in part) for part in parts)

    def _reads_alike(self, place: int) -> bool:
        here, there = self._reads[place], self._reads[place + self._length]
        return len(here) == len(there) and all(
            one == other
            or (
                other[0] - one[0] == self._length
                and (one[1] is None) == (other[1] is None)
                and (one[1] is None or other[1] is None or one[1].index == other[1].index)
            )
            for one, other in zip(here, there, strict=True)
        )
