"""A lower bound of a step whose branches run side by side, which takes no search."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tensoropt.pipeline.atom_costs import AtomCosts
from tensoropt.pipeline.branches.divisions import Side, Work
from tensoropt.pipeline.branches.side_by_side import places_of_pieces
from tensoropt.transformations.staged.simulated_time import StagePart, simulated_side_by_side

__all__ = ["LeastTime"]


class LeastTime:
    """The lower bound of a step with given sides.

    The devices of a side share all work evenly but the start of kernels, as in the bound by which
    `Divisions` orders divisions. In contrast to that bound, sides also wait for each other's
    pieces, and update the variables that they hold, all of them after their backward passes.

    The step is simulated as `Pipeline.side_by_side` is, with passes and updates that are no longer
    than those of any pipeline of these sides: a pipeline's stages also reshard, send, and sum
    gradients. The order of tasks on each side is fixed, and a task begins when the tasks before it
    have ended. So the end of a step is the longest path through its tasks, and no task ends earlier
    if another one takes longer.

    A constant that takes time and that several pieces of a side use is the one exception: a
    pipeline counts it once. Then the bound is 0.

    Args:
        costs: the costs of the components.
        overhead: the nanoseconds to start a kernel.
    """

    def __init__(self, costs: AtomCosts, overhead: float) -> None:
        self._costs, examples = costs, costs.growth.examples
        forward, backward, *_ = costs.at(examples)
        kernels = [len(costs.differentiated.get(atom.operator, ())) for atom in costs.atoms.atoms]
        self._forward = Work.of_kernels(forward, np.ones(len(forward)), overhead)
        self._backward = Work.of_kernels(backward, np.array(kernels), overhead)
        self._states = {name: number for number, name in enumerate(costs.atoms.states)}
        updates = [
            [costs.operator_time(name, examples).forward for name in state.updates]
            for state in costs.atoms.states.values()
        ]
        times, counts = np.array([*map(sum, updates)]), np.array([*map(len, updates)])
        self._updates = Work.of_kernels(times, counts, overhead)

    def of(self, sides: Sequence[Side], edges: Sequence[tuple[int, int]]) -> int:
        """Return the nanoseconds of the passes and updates of a step.

        Args:
            sides: in an order in which each reads from earlier sides alone.
            edges: (from, to) between components.
        """
        if any(map(self._shares_constants, sides)):
            return 0
        piece_of = places_of_pieces(sides)
        needs: dict[tuple[int, int], set[tuple[int, int]]] = {}
        for source, target in edges:
            if piece_of[source][0] != piece_of[target][0]:
                needs.setdefault(piece_of[target], set()).add(piece_of[source])
        parts = [
            [
                StagePart(
                    int(self._forward.of(piece, side.devices)),
                    int(self._backward.of(piece, side.devices)),
                    tuple(sorted(needs.get((number, place), ()))),
                )
                for place, piece in enumerate(side.pieces)
            ]
            for number, side in enumerate(sides)
        ]
        once = [int(self._updates.of(self._held(side), side.devices)) for side in sides]
        return simulated_side_by_side(parts, once)

    def _held(self, side: Side) -> list[int]:
        """Return the numbers of the states that a side holds."""
        atoms = self._costs.atoms.atoms
        names = {name for piece in side.pieces for atom in piece for name in atoms[atom].states}
        return sorted(self._states[name] for name in names if name in self._states)

    def _shares_constants(self, side: Side) -> bool:
        """Whether several pieces of a side use a constant that takes time."""
        atoms, seen = self._costs.atoms.atoms, set[str]()
        for piece in side.pieces:
            constants = {name for atom in piece for name in atoms[atom].constants}
            examples = self._costs.growth.examples
            if any(self._costs.operator_time(name, examples).total for name in seen & constants):
                return True
            seen |= constants
        return False
