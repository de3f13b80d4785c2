"""Do all ranks do the same? Asked before what would otherwise hang or be silently wrong."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from itertools import zip_longest

import numpy as np

from collectives import Group
from collectives.watchdog import about
from tensoropt.errors import RankMismatchError

__all__ = ["SCRIPT_END", "Agreement"]

SCRIPT_END = "the end of the script"
"""What a rank does that calls nothing more."""

_RULE = "every rank runs the same program: the same graph, and the same calls in the same order."
_SAME_CALLS = (
    "Take calls of TensorOpt out of conditions on the rank (`if rank() == 0:`), and see that no "
    "rank ends or leaves a loop before the others."
)
_SAME_DETAILS = "Give every rank the same script, arguments, data and package versions."
_LONGEST_LINE = 240
_NOTHING = "nothing more"


class Agreement:
    """Compares what the ranks are about to do.

    Every rank calls `check` at the same points of its program. A rank whose script does something
    else at that point (another fetch, another graph, the end of the script) is noticed there, by
    all ranks, and each raises the same error.

    Args:
        group: the ranks to compare; None in the single-process world, where there is one program.
    """

    def __init__(self, group: Group | None) -> None:
        self._group = group

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
            return
        digest = hashlib.sha256("\n".join([call, *details]).encode()).digest()
        own = np.frombuffer(digest, np.uint8)
        with about(call):
            digests = self._group.allgather(own).reshape(self._group.size, -1)
        if (digests == own).all():
            return
        # Every rank has all digests, so either none or all come here; what differs may be long.
        said = self._group.allgather_object([call, *details, remedy])
        raise RankMismatchError(explain([lines[:-1] for lines in said], said[0][-1]))


def explain(said: Sequence[Sequence[str]], remedy: str = _SAME_DETAILS) -> str:
    """The first difference between what the ranks said: per rank its call, then its details."""
    everyone = [tuple(lines) for lines in said]
    # What most ranks say is taken as right; of equally many, what the lowest rank says.
    usual = max(everyone, key=everyone.count)
    odd = next(lines for lines in everyone if lines != usual)
    these, those = _ranks(everyone, odd), _ranks(everyone, usual)
    if odd[0] != usual[0]:
        return (
            f"{_RULE} Got {_short(odd[0])} on {these}, but {_short(usual[0])} on {those}. "
            f"{_SAME_CALLS}"
        )
    other, own = next(
        pair for pair in zip_longest(odd[1:], usual[1:], fillvalue=_NOTHING) if pair[0] != pair[1]
    )
    return (
        f"{_RULE} Got in {_short(usual[0])} as the first difference `{_short(other)}` on {these}, "
        f"but `{_short(own)}` on {those}. {remedy}"
    )


def _ranks(everyone: Sequence[Sequence[str]], wanted: Sequence[str]) -> str:
    return _listed(rank for rank, lines in enumerate(everyone) if lines == wanted)


def _listed(ranks: Iterable[int]) -> str:
    names = [str(rank) for rank in ranks]
    if len(names) == 1:
        return f"rank {names[0]}"
    return f"ranks {', '.join(names[:-1])} and {names[-1]}"


def _short(line: str) -> str:
    if len(line) <= _LONGEST_LINE:
        return line
    return line[:_LONGEST_LINE] + " ..."
