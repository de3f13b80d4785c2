"""The blocks that hold states, use constants, and make and read tensors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tensoropt.arrays import Int64Array
from tensoropt.graph.operator import TensorName
from tensoropt.pipeline.atomic import Atoms

__all__ = ["BlockUsers"]

_Blocks = tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class BlockUsers:
    """The users of states, constants and tensors, as ascending numbers of blocks.

    Attributes:
        states: for each state the blocks that hold it.
        constants: for each constant the blocks that use it.
        tensors: for each tensor that other blocks than its maker's read, the blocks that read it.
        makers: the block that makes each of these tensors, in the order of ``tensors``.
    """

    states: Mapping[str, _Blocks]
    constants: Mapping[str, _Blocks]
    tensors: Mapping[TensorName, _Blocks]
    makers: tuple[int, ...]

    @classmethod
    def of(cls, atoms: Atoms, block: Int64Array) -> BlockUsers:
        """Return the users of a step's states, constants and tensors.

        Args:
            atoms: the components of the step.
            block: int64[atoms], the block of each component.
        """
        constants: dict[str, list[int]] = {}
        for place, atom in enumerate(atoms.atoms):
            for name in atom.constants:
                constants.setdefault(name, []).append(place)
        readers: dict[TensorName, list[int]] = {}
        makers: dict[TensorName, int] = {}
        for maker, reader, tensor in atoms.edges:
            if tensor is not None and block[maker] != block[reader]:
                makers[tensor] = int(block[maker])
                readers.setdefault(tensor, []).append(reader)

        def blocks_of(places: Iterable[int]) -> _Blocks:
            return tuple(sorted({int(block[place]) for place in places}))

        return cls(
            {name: blocks_of(state.atoms) for name, state in atoms.states.items()},
            {name: blocks_of(places) for name, places in constants.items()},
            {tensor: blocks_of(places) for tensor, places in readers.items()},
            tuple(makers[tensor] for tensor in readers),
        )
