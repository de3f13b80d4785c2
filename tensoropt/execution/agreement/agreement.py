"""The check that all ranks do the same, before calls that would hang or be wrong otherwise."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import numpy as np

from collectives import Group
from collectives.watchdog import about
from tensoropt.errors import RankMismatchError

__all__ = ["SCRIPT_END", "Agreement", "StopRequest", "listed", "reason"]

SCRIPT_END = "the end of the script"
"""The call in the place of a next one, on a rank whose script has ended."""

_RULE = "every rank runs the same program: the same graph, and the same calls in the same order."
_SAME_CALLS = (
    "Take calls of TensorOpt out of conditions on the rank (`if rank() == 0:`), and see that no "
    "rank ends or leaves a loop before the others."
)
_FAILED = "a step that failed with "
_SAME_FAILURES = (
    "A rank that fails alone in a step leaves the others' variables changed and its own not: find "
    "out before the step what must not be fed, on all ranks alike."
)
_FAILED_ALONE_SECONDS = 5.0
_SAME_DETAILS = "Give every rank the same script, arguments, data and package versions."
_LONGEST_LINE = 240
_NOTHING = "nothing more"


@dataclass(slots=True)
class StopRequest:
    """Whether the job is to stop soon, which ranks tell each other whenever they agree.

    Attributes:
        here: whether this rank has been told so.
        everywhere: whether a rank has; all ranks know it from the same agreement on.
    """

    here: bool = False
    everywhere: bool = False


class Agreement:
    """Compares what the ranks are about to do.

    Every rank calls `check` at the same points of its program. A rank whose script does something
    else at that point (another fetch, another graph, the end of the script) is noticed there, by
    all ranks, and each raises the same error.

    Args:
        group: the ranks to compare; None in the single-process world, where there is one program.
        end_job: ends all ranks for an error of this one; without it a rank that fails waits.
        stop: what ranks tell each other besides.
    """

    def __init__(
        self,
        group: Group | None,
        end_job: Callable[[BaseException], None] | None = None,
        stop: StopRequest | None = None,
    ) -> None:
        self._group = group
        self._end_job = end_job
        self.stop = StopRequest() if stop is None else stop

    def of(self, group: Group) -> Agreement:
        """That of fewer ranks."""
        return Agreement(group, self._end_job, self.stop)

    @property
    def compares(self) -> bool:
        """Whether there are other ranks."""
        return self._group is not None and self._group.size > 1

    def check(self, call: str, details: Sequence[str] = (), remedy: str = _SAME_DETAILS) -> None:
        """Agree on a call and its details. Every rank of the group calls.

        Args:
            call: what the script called, as the user would write it.
            details: lines that must be equal on all ranks, in order.
            remedy: what to do where the details differ.

        Raises:
            RankMismatchError: on every rank, naming the first difference.
        """
        if self._group is None or self._group.size == 1:
            self.stop.everywhere |= self.stop.here
            return
        digest = hashlib.sha256("\n".join([call, *details]).encode()).digest()
        own = np.frombuffer(digest + bytes([self.stop.here]), np.uint8)
        with about(call):
            said = self._group.allgather(own).reshape(self._group.size, -1)
        self.stop.everywhere |= bool(said[:, -1].any())
        if (said[:, :-1] == own[:-1]).all():
            return
        # Every rank has all digests, so either none or all come here; what differs may be long.
        lines = self._group.allgather_object([call, *details, remedy])
        raise RankMismatchError(explain([each[:-1] for each in lines], lines[0][-1]))

    def check_parts(self, call: str, part: int, details: Sequence[str]) -> None:
        """Agree on a call, and on details that differ between parts of the ranks, as the stages of
        a pipeline. Every rank calls.

        Args:
            call: as of `check`.
            part: the one that this rank is in.
            details: lines that must be equal on the ranks of a part, in order.

        Raises:
            RankMismatchError: on every rank, naming the first difference in a part.
        """
        self.check(call)
        if self._group is None or self._group.size == 1:
            return
        digest = hashlib.sha256("\n".join(details).encode()).hexdigest()
        said = self._group.allgather_object([part, digest])
        if len({tuple(each) for each in said}) == len({number for number, _ in said}):
            return
        lines = self._group.allgather_object([call, *details])
        for number in sorted({number for number, _ in said}):
            ranks = [rank for rank, (own, _) in enumerate(said) if own == number]
            if len({said[rank][1] for rank in ranks}) > 1:
                raise RankMismatchError(explain([lines[rank] for rank in ranks], ranks=ranks))

    def gather(self, call: str, value: Any) -> list[Any]:
        """The JSON values that all ranks give in a call, by rank. Every rank calls.

        Raises:
            RankMismatchError: on every rank, if they are not all in this call.
        """
        if self._group is None or self._group.size == 1:
            return [value]
        self.check(call)
        with about(call):
            return self._group.allgather_object(value)

    def failed(self, error: Exception) -> None:
        """Agree on a step that has failed here. Every rank whose step fails calls.

        Where all fail alike this returns, and a script may catch the error and go on: the ranks are
        still in step. A rank that fails alone waits for others that wait for it, so after five
        seconds it ends the job with its error, whether or not the script would catch it.

        Raises:
            RankMismatchError: on every rank, if the others had another error or none.
        """
        self._agree_on(f"{type(error).__name__}: {reason(str(error))}", error)

    def failed_in_checks(self, error: Exception, own: Any) -> list[Any]:
        """Agree on a step that has failed here as it has on every rank. Each calls.

        Args:
            error: of the step.
            own: its reason on this rank, as JSON holds it.

        Returns:
            The reasons of all ranks.

        Raises:
            RankMismatchError: on every rank, if another had another error after all.
        """
        self._agree_on("a check of a rank", error)
        if self._group is None:
            return [own]
        return self._group.allgather_object(own)

    def _agree_on(self, failure: str, error: Exception) -> None:
        if self._group is None or self._group.size == 1:
            return
        alone = None
        if self._end_job is not None:
            alone = threading.Timer(_FAILED_ALONE_SECONDS, self._end_job, [error])
            alone.daemon = True
            alone.start()
        try:
            self.check(f"{_FAILED}{failure}")
        except RankMismatchError as difference:
            raise difference from error
        finally:
            if alone is not None:
                alone.cancel()


def reason(text: str) -> str:
    """An error's text in a line; of TensorFlow's without where the operator was made."""
    lines = [line for line in text.splitlines() if line.strip()]
    nodes = [number for number, line in enumerate(lines) if line.startswith("Node: ")]
    return next(iter(lines[nodes[0] + 1 :] if nodes else lines), "")


def explain(
    said: Sequence[Sequence[str]], remedy: str = _SAME_DETAILS, ranks: Sequence[int] = ()
) -> str:
    """The first difference between what the ranks said: per rank its call, then its details.

    Args:
        said: by rank.
        remedy: what to do.
        ranks: their numbers; by default 0, 1, ...
    """
    everyone = [tuple(lines) for lines in said]
    # The majority is taken as right; in a tie, the lines of the lowest rank.
    usual = max(everyone, key=everyone.count)
    odd = next(lines for lines in everyone if lines != usual)
    ranks = ranks or range(len(everyone))
    these, those = (_ranks(everyone, lines, ranks) for lines in (odd, usual))
    if odd[0] != usual[0]:
        has_failed = any(line.startswith(_FAILED) for line in (odd[0], usual[0]))
        return (
            f"{_RULE} Got {_short(odd[0])} on {these}, but {_short(usual[0])} on {those}. "
            f"{_SAME_FAILURES if has_failed else _SAME_CALLS}"
        )
    other, own = next(
        pair for pair in zip_longest(odd[1:], usual[1:], fillvalue=_NOTHING) if pair[0] != pair[1]
    )
    return (
        f"{_RULE} Got in {_short(usual[0])} as the first difference `{_short(other)}` on {these}, "
        f"but `{_short(own)}` on {those}. {remedy}"
    )


def _ranks(everyone: Sequence[Sequence[str]], wanted: Sequence[str], ranks: Sequence[int]) -> str:
    return listed(rank for rank, said in zip(ranks, everyone, strict=True) if said == wanted)


def listed(ranks: Iterable[int]) -> str:
    """Ranks as a text: "rank 1", or "ranks 0, 1 and 2"."""
    names = [str(rank) for rank in ranks]
    if len(names) == 1:
        return f"rank {names[0]}"
    return f"ranks {', '.join(names[:-1])} and {names[-1]}"


def _short(line: str) -> str:
    if len(line) <= _LONGEST_LINE:
        return line
    return line[:_LONGEST_LINE] + " ..."
