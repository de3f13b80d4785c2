"""Do all ranks do the same? Asked before what would otherwise hang or be silently wrong."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from collectives import Group
from tensoropt.errors import RankMismatchError

__all__ = ["Agreement"]


class Agreement:
    """Compares what the ranks are about to do.

    Every rank calls `check` at the same points of its program. A rank whose script does something
    else at that point (another fetch, another graph, the end of the script) is noticed there, by
    all ranks, and each raises the same error.
    """

    def __init__(self, group: Group | None) -> None:
        self._group = group
        self._calls = 0

    def check(self, call: str, details: Sequence[str] = ()) -> None:
        """Agree on a call and its details.

        Args:
            call: what the script called, as the user would write it.
            details: lines that must be equal on all ranks, in order.

        Raises:
            RankMismatchError: on every rank, naming the first difference.
        """
        self._calls += 1
        if self._group is None or self._group.size == 1:
            return
        digest = hashlib.sha256("\n".join([call, *details]).encode()).hexdigest()
        digests = self._group.allgather_object([self._calls, digest])
        if all(other == digests[0] for other in digests):
            return
        calls = self._group.allgather_object([call, *details])
        raise RankMismatchError(_explain(calls, self._calls))


def _explain(calls: Sequence[Sequence[str]], number: int) -> str:
    reference = calls[0]
    odd = next(rank for rank, lines in enumerate(calls) if list(lines) != list(reference))
    other = calls[odd]
    # If most ranks disagree with rank 0, it is rank 0 that is odd.
    if sum(list(lines) == list(other) for lines in calls) > sum(
        list(lines) == list(reference) for lines in calls
    ):
        odd, other, reference, base = 0, reference, other, odd
    else:
        base = 0
    rule = "every rank runs the same program: the same graph and the same calls in the same order."
    if other[0] != reference[0]:
        return (
            f"{rule} At call {number} rank {odd} called {other[0]}, while rank {base} called "
            f"{reference[0]}. Move calls out of conditions on the rank (such as `if rank() == 0:`)."
        )
    for line, (theirs, ours) in enumerate(zip(other[1:], reference[1:], strict=False)):
        if theirs != ours:
            return (
                f"{rule} In {reference[0]} rank {odd} differs from rank {base} first at line "
                f"{line}: rank {odd} has `{theirs}`, rank {base} has `{ours}`."
            )
    longer, lines = (odd, other) if len(other) > len(reference) else (base, reference)
    extra = lines[min(len(other), len(reference))]
    return f"{rule} In {reference[0]} rank {longer} alone has `{extra}`."
