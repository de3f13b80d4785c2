"""Equal stages, such as those of a model's layers, are priced once."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from tensoropt.arrays import Int64Array
from tensoropt.graph.operator import TensorName
from tensoropt.pipeline.atom_costs import AtomCosts
from tensoropt.pipeline.sent import sent
from tensoropt.pipeline.stages.points import Profile, StagePoints

__all__ = ["LikeStages", "profile_like_stages"]


def profile_like_stages(profile: Profile, like: Callable[[int, int], Hashable]) -> Profile:
    """Return a profile that prices equal stages once.

    Args:
        profile: gives the prices.
        like: maps a range of blocks (first and last) to a value that is equal for ranges that cost
            the same; for example a `LikeStages`.
    """
    priced: dict[Hashable, StagePoints | None] = {}

    def profile_once(
        first: int, last: int, devices: int, microbatch: int, copies: int
    ) -> StagePoints | None:
        key = like(first, last), devices, microbatch, copies
        if key not in priced:
            priced[key] = profile(first, last, devices, microbatch, copies)
        return priced[key]

    return profile_once


class LikeStages:
    """Numbers ranges of blocks. Ranges have the same number if they cost the same as stages.

    Two ranges have the same number if their components, in order, cost the same and read each other
    at the same places; if they share tensors of earlier blocks, and states, in the same way; and if
    they send the same amounts, and the same amounts pass them.

    Args:
        costs: the components.
        block: int64[atoms], the block of each component; blocks are in topological order.
    """

    def __init__(self, costs: AtomCosts, block: Int64Array) -> None:
        atoms, self._numbers = costs.atoms, dict[Hashable, int]()
        self._sent = sent(costs, block)
        blocks = int(block.max()) + 1
        places: list[tuple[int, int]] = []  # for each component its block and its place there
        counts = [0] * blocks
        for number in block.tolist():
            places.append((number, counts[number]))
            counts[number] += 1
        inside: list[list[Hashable]] = [[] for _ in range(blocks)]
        self._reads: list[list[tuple[int, TensorName | None, int, int]]] = [
            [] for _ in range(blocks)
        ]
        self._states: list[list[str]] = [[] for _ in range(blocks)]
        self._holders = {
            name: {int(block[atom]) for atom in state.atoms} for name, state in atoms.states.items()
        }
        for number, atom in enumerate(atoms.atoms):
            here, place = places[number]
            states = [name for name in atom.states if name in atoms.states]
            inside[here].append(
                (
                    costs.alike(number),
                    tuple(costs.growth.alike(name) for name in atom.constants),
                    tuple((place, *costs.state_bytes(name)) for name in states),
                )
            )
            self._states[here] += states
        for maker, reader, tensor in atoms.edges:
            here, place = places[reader]
            self._reads[here].append((place, tensor, *places[maker]))
        self._inside = [self._number(tuple(components)) for components in inside]

    def __call__(self, first: int, last: int) -> int:
        """Return the number of a range of blocks, both ends included."""
        tensors: dict[Hashable, int] = {}
        states: dict[str, int] = {}
        key: list[Hashable] = [self._sent[:, :, first, last].tobytes()]
        for number in range(first, last + 1):
            key.append(self._inside[number])
            for place, tensor, maker, maker_place in self._reads[number]:
                index = -1 if tensor is None else tensor.index
                if first <= maker:
                    key.append((place, maker - first, maker_place, index))
                else:
                    source = tensor or (maker, maker_place)
                    key.append((place, tensors.setdefault(source, len(tensors)), index))
            for name in self._states[number]:
                beyond = any(not first <= holder <= last for holder in self._holders[name])
                key.append((states.setdefault(name, len(states)), beyond))
        return self._number(tuple(key))

    def _number(self, key: Hashable) -> int:
        return self._numbers.setdefault(key, len(self._numbers))
