"""Variables of parallel steps that the first rank alone reads, for example to write a file.

The first rank's script reads a variable; the other ranks wait for such reads, and send their slices
of it. Only the first rank's script gets the value, and only until it is discarded.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from math import prod
from typing import Any

from tensoropt.errors import RankMismatchError
from tensoropt.execution.checkpoints.checkpoint import SLICED_TYPES
from tensoropt.execution.checkpoints.memory_groups import groups_within
from tensoropt.execution.checkpoints.slices import SavedTensor
from tensoropt.frontend.job.job import current
from tensoropt.frontend.session.session import executor_of
from tensoropt.frontend.steps.step_graph import Captured
from tensoropt.frontend.steps.variable_values import (
    bring_up_to_date,
    discard,
    newest_of,
    only_read,
    set_value,
)

__all__ = ["ask_all", "is_sliced", "on_first_rank_alone", "saved_tensor"]

_GROUP_BYTES = 16 << 20  # the most bytes of a group of variables, unless one alone has more


_reads: _Reads | None = None  # on the first rank, while the other ranks wait for its reads


def on_first_rank_alone(
    call: str,
    variables: Iterable[Any],
    write: Callable[[], Any],
    keeps: bool = True,
    answer: Callable[[Any, Sequence[Any]], Any] | None = None,
) -> Any:
    """Run a function on the first rank, which may read variables. All ranks call this.

    Args:
        call: the name of the call, for errors.
        variables: the variables that the function may read, each once, in its probable order.
        write: the function; it assigns none of the variables.
        keeps: whether a value is kept until the end of the function; else, until variables of
            another group are read. A function that stores handles to read them later needs this.
        answer: what all ranks do when the first one calls `ask_all`.

    Returns:
        The function's result on the first rank; None on the other ranks.

    Raises:
        RankMismatchError: if some ranks do not make this call.
        Exception: the error of the function, on the first rank.
    """
    global _reads
    reads = _Reads(call, variables, keeps, answer)
    if current().group.rank:
        reads.serve()
        return None
    with only_read(reads.variables, reads.bring):
        _reads = reads
        try:
            return write()
        except RankMismatchError:
            reads.are_over = True  # All ranks raise this error.
            raise
        finally:
            _reads = None
            reads.end()


def ask_all(question: Callable[[Sequence[Any]], Any]) -> Any:
    """Let all ranks answer a question; the function of `on_first_rank_alone` asks.

    Args:
        question: returns the question, a JSON object, for the list of variables that the answer
            gets, too. With None, nothing is asked.

    Returns:
        The first rank's answer; None if nothing is asked, or if no rank waits for questions.
    """
    if _reads is None:
        return None
    asked = question(_reads.variables)
    return None if asked is None else _reads.ask(asked)


def saved_tensor(captured: Captured, name: str = "") -> SavedTensor:
    """A variable of a step's graph as a tensor of a checkpoint, by default of its own name."""
    extents = tuple(captured.variable.shape)
    start = (0,) * len(extents)
    dtype = captured.variable.dtype.name
    return SavedTensor(name or captured.handle, captured.handle, dtype, extents, extents, start)


class _Reads:
    """The reads of the first rank, with variables in groups that are brought together."""

    def __init__(
        self,
        call: str,
        variables: Iterable[Any],
        keeps: bool,
        answer: Callable[[Any, Sequence[Any]], Any] | None,
    ) -> None:
        self._call = f"a read of the first rank in {call}"
        self._keeps = keeps
        self._answer = answer
        self.are_over = False
        self.variables = list(variables)
        whole = [each for each in self.variables if not is_sliced(each)]
        bring_up_to_date(whole)
        self._groups = _grouped([each for each in self.variables if newest_of(each) is not None])
        self._number_of = {
            id(variable): number for number, group in enumerate(self._groups) for variable in group
        }
        self._present: set[int] = set()

    def serve(self) -> None:
        """Send slices, on a rank other than the first, until the first rank has ended."""
        failed: Exception | None = None
        while (asked := self._from_first(None)) is not None:
            try:
                self._reply(asked)
            except RankMismatchError:
                raise  # All ranks raise this error.
            except Exception as error:
                failed = failed or error
        if failed is not None:
            raise failed

    def ask(self, question: Any) -> Any:
        """Let all ranks answer a question of the first rank."""
        return self._reply(self._from_first(question))

    def _reply(self, asked: Any) -> Any:
        if isinstance(asked, int):
            return self._get(asked)
        return None if self._answer is None else self._answer(asked, self.variables)

    def bring(self, variable: Any) -> None:
        """Set the first rank's variable to its newest value, with the others of its group."""
        number = self._number_of[id(variable)]
        if number in self._present:
            return
        if not self._keeps:
            self._discard()
        values = self.ask(number)
        self._present.add(number)
        for each in self._groups[number]:
            newest = newest_of(each)
            assert newest is not None
            set_value(each, values.pop(newest[1].handle))

    def end(self) -> None:
        """Tell the other ranks that there are no more reads, and free the values."""
        self._discard()
        if not self.are_over:
            self._from_first(None)

    def _from_first(self, question: Any) -> Any:
        return current().agreement.gather(self._call, question)[0]

    def _get(self, number: int) -> dict[str, Any]:
        entries = [newest for each in self._groups[number] if (newest := newest_of(each))]
        with executor_of(entries[0][0].graph) as executor:
            saved = [saved_tensor(captured) for _, captured in entries]
            return executor.variables.on_first(saved, current().group)

    def _discard(self) -> None:
        for number in self._present:
            for variable in self._groups[number]:
                discard(variable)
        self._present.clear()


def is_sliced(variable: Any) -> bool:
    """Whether slices of a variable can be sent and written; else it is read whole."""
    return variable.dtype.name in SLICED_TYPES and variable.shape.is_fully_defined()


def _grouped(variables: Iterable[Any]) -> list[list[Any]]:
    """Divide variables, in order, into groups of one graph that are brought together."""

    def home(variable: Any) -> int:
        newest = newest_of(variable)
        assert newest is not None
        return id(newest[0])

    return [
        group
        for _, of_graph in itertools.groupby(variables, home)
        for group in groups_within(_GROUP_BYTES, of_graph, _bytes)
    ]


def _bytes(variable: Any) -> int:
    return int(prod(variable.shape) * variable.dtype.size)
