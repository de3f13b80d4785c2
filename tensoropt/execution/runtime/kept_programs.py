"""A table of the programs of one TensorFlow graph, by fetches and sizes of fed tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from tensoropt.errors import LayoutError
from tensoropt.execution.runtime.emitted_graph import EmittedGraph, Extents
from tensoropt.execution.runtime.open_dims import OpenDims
from tensoropt.execution.runtime.program import Program
from tensoropt.parallel.any_size import SizeError

__all__ = ["AnySize", "KeptPrograms"]

_FEW_SHAPES = 4  # Programs for this number of sets of shapes are kept whatever their size.
_MOST_SHAPES = 32  # the most sets of shapes for which programs are kept
_MOST_OPERATORS = 100_000  # in the programs of all ranks, beyond _FEW_SHAPES: about a gigabyte


class AnySize(NamedTuple):
    """Two runs of different sizes. Comparing them tells whether a program holds for all sizes.

    Attributes:
        shapes: the shapes of fed tensors in one run.
        other: the graph that was emitted for the run of another size.
    """

    shapes: Mapping[str, tuple[int, ...]]
    other: EmittedGraph


class KeptPrograms:
    """Programs by their fetches and the shapes of their fed tensors.

    Args:
        open_dims: the dimensions of fed tensors that may have any size.

    Attributes:
        emitted: the graphs from which the programs fetch.
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
        """Return the kept program of fetches for these shapes or for all sizes, or None."""
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
        """Keep the program of some fetches of an emitted graph."""
        self._programs[_key(tensors, operations, emitted.shapes)] = program

    def emitted_for(
        self,
        roots: Sequence[str],
        shapes: Mapping[str, tuple[int, ...]],
        emit: Callable[[Mapping[str, Extents], AnySize | None], EmittedGraph],
    ) -> EmittedGraph:
        """Return the emitted graph of some operators for some shapes; emit it if there is none.

        The second size of open dimensions gets a graph for all sizes, if there can be one.

        Args:
            roots: names of the operators that are run or fetched.
            shapes: the shapes of fed tensors.
            emit: emits the graph for shapes; for any size if its second argument is given. It
                raises `SizeError` or `LayoutError` if the graph would not hold for all sizes.
        """
        candidates = [emitted for emitted in self.emitted if emitted.has(frozenset(roots))]
        opened = self._open_dims.opened(shapes)
        emitted = next((each for each in candidates if each.shapes in (shapes, opened)), None)
        if emitted is None:
            other = next((each for each in candidates if self._is_at_one_size(each, opened)), None)
            if other is not None and self._open_dims.may_differ(roots, shapes):
                try:
                    emitted = emit(opened, AnySize(shapes, other))
                except (SizeError, LayoutError):  # Each size gets a program of its own.
                    self._open_dims.hold(roots, shapes)
            if emitted is None:
                emitted = emit(shapes, None)
            self.emitted.append(emitted)
        return emitted

    def _is_at_one_size(self, emitted: EmittedGraph, opened: Mapping[str, Extents]) -> bool:
        """Whether a graph for one size of open dimensions has run.

        A graph that has not run may have the size of the plan, which no run need have.
        """
        ran = any(each.has_run for each in self._programs.values() if each.graph is emitted.graph)
        return ran and self._open_dims.opened(emitted.shapes) == opened

    def are_full(self, ranks: int) -> bool:
        """Whether all programs must be dropped before another is emitted. All ranks answer alike.

        Operations cannot be removed from a TensorFlow graph. The script's fetches bound the number
        of programs for the same shapes; nothing bounds the number of shapes.

        Args:
            ranks: the largest number of ranks that a process emits.
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
