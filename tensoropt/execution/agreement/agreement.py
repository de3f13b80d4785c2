"""Check that all ranks make the same call, before a difference makes them hang or train wrong."""

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

__all__ = ["SCRIPT_END", "Agreement", "StopRequest", "WorkDone", "listed", "reason"]

SCRIPT_END = "the end of the script"
"""The name of the last call of a rank: its script has ended."""

_RULE = "every rank runs the same program: the same graph, and the same calls in the same order."
_SAME_CALLS = (
    "Take calls of TensorOpt out of conditions on the rank (`if rank() == 0:`), and see that no "
    "rank ends or leaves a loop before the others."
)
_FAILED = "a step that failed with "
_SAME_FAILURES = (
    "If one rank fails in a step, the variables of other ranks change and its variables do not. "
    "Check fed values before the step, on all ranks."
)
_FAILED_ALONE_SECONDS = 5.0
_SAME_DETAILS = "Give every rank the same script, arguments, data and package versions."
_LONGEST_LINE = 240
_NOTHING = "nothing more"


@dataclass(slots=True)
class StopRequest:
    """Whether the job is to stop soon. Ranks tell each other in each agreement.

    Attributes:
        here: whether this rank was told to stop.
        everywhere: whether any rank was told to stop. All ranks learn it in the same agreement.
    """

    here: bool = False
    everywhere: bool = False


@dataclass(slots=True)
class WorkDone:
    """Whether the work beside the steps has ended. Ranks tell each other in each agreement.

    Attributes:
        here: whether this rank's part has ended, well or not.
        failed_here: whether this rank's part has failed.
        everywhere: whether all parts have ended, or one has failed, by the last agreement. All
            ranks have the same value.
    """

    here: bool = False
    failed_here: bool = False
    everywhere: bool = False


class Agreement:
    """Compares the calls that ranks are about to make.

    Every rank calls `check` at the same points of its program. If a rank's script does something
    else at this point (another fetch, another graph, the end of the script), all ranks notice it
    there, and each raises the same error.

    Args:
        group: the ranks to compare; None if one process has all ranks, and so one program.
        end_job: ends all ranks because of an error on this rank. Without it a rank that fails
            waits for the others.
        stop: this rank's request to stop, which is compared too.
        done: the state of the work beside the steps, which ranks tell each other, too.
    """

    def __init__(
        self,
        group: Group | None,
        end_job: Callable[[BaseException], None] | None = None,
        stop: StopRequest | None = None,
        done: WorkDone | None = None,
    ) -> None:
        self._group = group
        self._end_job = end_job
        self.stop = StopRequest() if stop is None else stop
        self.done = WorkDone() if done is None else done

    def among(self, group: Group) -> Agreement:
        """Return an agreement between some of the ranks."""
        return Agreement(group, self._end_job, self.stop, self.done)

    @property
    def compares(self) -> bool:
        """Whether there are other ranks."""
        return self._group is not None and self._group.size > 1

    def check(self, call: str, details: Sequence[str] = (), remedy: str = _SAME_DETAILS) -> None:
        """Check that all ranks make the same call with the same details. All ranks call this.

        Args:
            call: the call in the script, as the user would write it.
            details: lines that must be equal on all ranks, in order.
            remedy: advice for the error if the details differ.

        Raises:
            RankMismatchError: on every rank, naming the first difference.
        """
        if self._group is None or self._group.size == 1:
            self.stop.everywhere |= self.stop.here
            self.done.everywhere = self.done.here
            return
        digest = hashlib.sha256("\n".join([call, *details]).encode()).digest()
        flags = bytes([self.stop.here, self.done.here, self.done.failed_here])
        message = np.frombuffer(digest + flags, np.uint8)
        with about(call):
            messages = self._group.allgather(message).reshape(self._group.size, -1)
        stops, ended, failed = messages[:, -len(flags) :].T
        self.stop.everywhere |= bool(stops.any())
        self.done.everywhere = bool(ended.all() or failed.any())
        if (messages[:, : -len(flags)] == message[: -len(flags)]).all():
            return
        # All ranks have the same digests, so all get here. Only now are the long lines sent.
        lines = self._group.allgather_object([call, *details, remedy])
        raise RankMismatchError(explain([of_rank[:-1] for of_rank in lines], lines[0][-1]))

    def check_parts(self, call: str, part: int, details: Sequence[str]) -> None:
        """Check that all ranks make the same call, and that ranks of one part give equal details.

        The stages of a pipeline are such parts. All ranks call this.

        Args:
            call: the call, as in `check`.
            part: the number of this rank's part.
            details: lines that must be equal on all ranks of this part, in order.

        Raises:
            RankMismatchError: on every rank, naming the first difference in a part.
        """
        self.check(call)
        if self._group is None or self._group.size == 1:
            return
        digest = hashlib.sha256("\n".join(details).encode()).hexdigest()
        digests = self._group.allgather_object([part, digest])
        parts = {number for number, _ in digests}
        if len({tuple(pair) for pair in digests}) == len(parts):
            return
        lines = self._group.allgather_object([call, *details])
        for number in sorted(parts):
            ranks = [rank for rank, (of_rank, _) in enumerate(digests) if of_rank == number]
            if len({digests[rank][1] for rank in ranks}) > 1:
                raise RankMismatchError(explain([lines[rank] for rank in ranks], ranks=ranks))

    def gather(self, call: str, value: Any) -> list[Any]:
        """Return the JSON values that the ranks give, by rank. All ranks call this.

        Raises:
            RankMismatchError: on every rank, if a rank makes another call.
        """
        if self._group is None or self._group.size == 1:
            return [value]
        self.check(call)
        with about(call):
            return self._group.allgather_object(value)

    def failed(self, error: Exception) -> None:
        """Check that a step that failed on this rank failed on all. Ranks whose step fails call it.

        If all ranks failed alike, this returns: the ranks are still in step, so a script may catch
        the error and go on. If this rank failed alone, it and the others wait for each other. After
        five seconds it ends the job with its error, even if the script would catch the error.

        Raises:
            RankMismatchError: on every rank, if ranks had different errors or some had none.
        """
        self._agree_on(f"{type(error).__name__}: {reason(str(error))}", error)

    def failed_in_checks(self, error: Exception, reason: Any) -> list[Any]:
        """Check that a step ended in a failed check on all ranks, and exchange the reasons.

        Args:
            error: the error of the step.
            reason: the reason on this rank, as a JSON value.

        Returns:
            The reasons of all ranks.

        Raises:
            RankMismatchError: on every rank, if some rank had another error.
        """
        self._agree_on("a check of a rank", error)
        if self._group is None:
            return [reason]
        return self._group.allgather_object(reason)

    def _agree_on(self, failure: str, error: Exception) -> None:
        if self._group is None or self._group.size == 1:
            return
        timer = None
        if self._end_job is not None:
            timer = threading.Timer(_FAILED_ALONE_SECONDS, self._end_job, [error])
            timer.daemon = True
            timer.start()
        try:
            self.check(f"{_FAILED}{failure}")
        except RankMismatchError as difference:
            raise difference from error
        finally:
            if timer is not None:
                timer.cancel()


def reason(text: str) -> str:
    """Return the line of an error's text that says why.

    Errors of TensorFlow have it after the lines that say where the operator was made.
    """
    lines = [line for line in text.splitlines() if line.strip()]
    nodes = [number for number, line in enumerate(lines) if line.startswith("Node: ")]
    return next(iter(lines[nodes[0] + 1 :] if nodes else lines), "")


def explain(
    lines_by_rank: Sequence[Sequence[str]],
    remedy: str = _SAME_DETAILS,
    ranks: Sequence[int] = (),
) -> str:
    """Return the text of an error that names the first difference between ranks.

    Args:
        lines_by_rank: per rank its call, then the details.
        remedy: advice for different details.
        ranks: the numbers of the ranks; by default 0, 1, ...
    """
    all_lines = [tuple(lines) for lines in lines_by_rank]
    # The majority is taken as right; in a tie, the lines of the lowest rank.
    usual = max(all_lines, key=all_lines.count)
    odd = next(lines for lines in all_lines if lines != usual)
    ranks = ranks or range(len(all_lines))
    odd_ranks, usual_ranks = (
        listed(rank for rank, lines in zip(ranks, all_lines, strict=True) if lines == wanted)
        for wanted in (odd, usual)
    )
    if odd[0] != usual[0]:
        has_failed = any(line.startswith(_FAILED) for line in (odd[0], usual[0]))
        return (
            f"{_RULE} Got {_short(odd[0])} on {odd_ranks}, but {_short(usual[0])} on "
            f"{usual_ranks}. {_SAME_FAILURES if has_failed else _SAME_CALLS}"
        )
    odd_line, usual_line = next(
        pair for pair in zip_longest(odd[1:], usual[1:], fillvalue=_NOTHING) if pair[0] != pair[1]
    )
    return (
        f"{_RULE} Got in {_short(usual[0])} as the first difference `{_short(odd_line)}` on "
        f"{odd_ranks}, but `{_short(usual_line)}` on {usual_ranks}. {remedy}"
    )


def listed(ranks: Iterable[int]) -> str:
    """Return ranks as a text: "rank 1", or "ranks 0, 1 and 2"."""
    names = [str(rank) for rank in ranks]
    if len(names) == 1:
        return f"rank {names[0]}"
    return f"ranks {', '.join(names[:-1])} and {names[-1]}"


def _short(line: str) -> str:
    if len(line) <= _LONGEST_LINE:
        return line
    return line[:_LONGEST_LINE] + " ..."
