"""Stages that are alike, as those of a model's layers are: priced once."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from tensoropt.arrays import Int64Array
from tensoropt.graph.operator import TensorName
from tensoropt.pipeline.atom_costs import AtomCosts
from tensoropt.pipeline.sent import sent
from tensoropt.pipeline.stages.points import Profile, StagePoints

__all__ = ["LikeStages", "profile_like_stages"]


def profile_like_stages(profile: Profile, like: Callable[[int, int], Hashable]) -> Profile:
    """A profile that asks another once for all stages that are alike.

    Args:
        profile: asked.
        like: equal for ranges of blocks, first and last, that cost the same; a `LikeStages`.
    """
    known: dict[Hashable, StagePoints | None] = {}

    def asked(
        first: int, last: int, devices: int, microbatch: int, copies: int
    ) -> StagePoints | None:
        key = like(first, last), devices, microbatch, copies
        if key not in known:
            known[key] = profile(first, last, devices, microbatch, copies)
        return known[key]

    return asked


class LikeStages:
    """Numbers of ranges of blocks: equal where the same is computed of the same.

    Components, in their order, are alike and read each other alike; what they read of earlier
    blocks, and hold as states, is shared among them alike; and as much is sent, and passes them.

    Args:
        costs: of the components.
        block: int64[atoms], the block of each, blocks in topological order.
    """

    def __init__(self, costs: AtomCosts, block: Int64Array) -> None:
        atoms, self._numbers = costs.atoms, dict[Hashable, int]()
        self._sent = sent(costs, block)
        blocks = int(block.max()) + 1
        places: list[tuple[int, int]] = []  # of each component its block, and its number there
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
        self._inside = [self._number(tuple(each)) for each in inside]

    def __call__(self, first: int, last: int) -> int:
        """The number of a range, both ends included."""
        tensors: dict[Hashable, int] = {}
        states: dict[str, int] = {}
        key: list[Hashable] = [self._sent[:, :, first, last].tobytes()]
        for number in range(first, last + 1):
            key.append(self._inside[number])
            for place, tensor, maker, there in self._reads[number]:
                index = -1 if tensor is None else tensor.index
                if first <= maker:
                    key.append((place, maker - first, there, index))
                else:
                    made = tensor or (maker, there)
                    key.append((place, tensors.setdefault(made, len(tensors)), index))
            for name in self._states[number]:
                beyond = any(not first <= other <= last for other in self._holders[name])
                key.append((states.setdefault(name, len(states)), beyond))
        return self._number(tuple(key))

    def _number(self, key: Hashable) -> int:
        return self._numbers.setdefault(key, len(self._numbers))
