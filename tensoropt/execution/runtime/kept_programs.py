"""The programs of one TensorFlow graph: which there are, and which serve which sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from tensoropt.errors import LayoutError
from tensoropt.execution.runtime.emitted_graph import EmittedGraph, Extents
from tensoropt.execution.runtime.open_dims import OpenDims
from tensoropt.execution.runtime.program import Program
from tensoropt.parallel.any_size import SizeError

__all__ = ["AnySize", "KeptPrograms"]

_FEW_SHAPES, _MOST_SHAPES = 4, 32  # for which programs are kept: so many, up to so many
_MOST_OPERATORS = 100_000  # of the programs for more than a few shapes, on all ranks: a gigabyte


class AnySize(NamedTuple):
    """By what is known whether a program holds for every size of open dimensions.

    Attributes:
        shapes: of what is fed in one run.
        other: what was emitted for another run, of another size.
    """

    shapes: Mapping[str, tuple[int, ...]]
    other: EmittedGraph


class KeptPrograms:
    """Programs by what they fetch and what they are fed.

    Args:
        open_dims: the dimensions of what is fed that may have any size.

    Attributes:
        emitted: what they fetch from.
    """

    def __init__(self, open_dims: OpenDims) -> None:
        self._open_dims = open_dims
        self._programs: dict[tuple[object, ...], Program] = {}
        self.emitted: list[EmittedGraph] = []

    def __len__(self) -> int:
        return len(self._programs)

    def known(
        self,
        tensors: Sequence[str],
        operations: Sequence[str],
        shapes: Mapping[str, tuple[int, ...]],
    ) -> Program | None:
        """The program of fetches for these shapes or all sizes; None before its first use."""
        program = self._programs.get(_key(tensors, operations, shapes))
        if program is None:
            opened = self._open_dims.opened(shapes)
            program = self._programs.get(_key(tensors, operations, opened))
        return program

    def keep(
        self,
        tensors: Sequence[str],
        operations: Sequence[str],
        emitted: EmittedGraph,
        program: Program,
    ) -> None:
        """Take in the program of some fetches of an emitted graph."""
        self._programs[_key(tensors, operations, emitted.shapes)] = program

    def emitted_for(
        self,
        roots: Sequence[str],
        shapes: Mapping[str, tuple[int, ...]],
        emit: Callable[[Mapping[str, Extents], AnySize | None], EmittedGraph],
    ) -> EmittedGraph:
        """What some operators need, emitted for these shapes; for all sizes of open dimensions
        where there is one already for another size, and it holds.

        Args:
            roots: names of the operators.
            shapes: of what is fed.
            emit: emits it for shapes, of any size where its second argument is given; raises
                `SizeError` or `LayoutError` if that would not hold for all sizes.
        """
        having = [emitted for emitted in self.emitted if emitted.has(frozenset(roots))]
        opened = self._open_dims.opened(shapes)
        emitted = next((each for each in having if each.shapes in (shapes, opened)), None)
        if emitted is None:
            other = next((each for each in having if self._is_at_one_size(each, opened)), None)
            if other is not None and self._open_dims.may_differ(roots, shapes):
                try:
                    emitted = emit(opened, AnySize(shapes, other))
                except (SizeError, LayoutError):  # then each size has a program of its own
                    self._open_dims.hold(roots, shapes)
            if emitted is None:
                emitted = emit(shapes, None)
            self.emitted.append(emitted)
        return emitted

    def _is_at_one_size(self, emitted: EmittedGraph, opened: Mapping[str, Extents]) -> bool:
        """Whether something has run at one size of open dimensions; a plan's own need not occur."""
        ran = any(each.has_run for each in self._programs.values() if each.graph is emitted.graph)
        return ran and self._open_dims.opened(emitted.shapes) == opened

    def are_full(self, ranks: int) -> bool:
        """Whether another program would be one too many; the same on all ranks.

        Nothing leaves a TensorFlow graph. Programs for the same shapes are bounded by what the
        script fetches, those for other shapes by nothing.

        Args:
            ranks: the most that a process emits.
        """
        fed = {frozenset(emitted.shapes.items()) for emitted in self.emitted}
        if len(fed) < _FEW_SHAPES:
            return False
        operators = sum(len(emitted.graph) for emitted in self.emitted) * ranks
        if len(fed) < _MOST_SHAPES and operators < _MOST_OPERATORS:
            return False
        return not any(emitted.holds_state for emitted in self.emitted)


def _key(
    tensors: Sequence[str], operations: Sequence[str], shapes: Mapping[str, Extents]
) -> tuple[object, ...]:
    return tuple(tensors), tuple(operations), tuple(sorted(shapes.items()))
