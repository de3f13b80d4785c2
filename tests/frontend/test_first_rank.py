"""The first rank does what all go on with: where it leaves instead, the others hear of it."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from collectives import Group
from tensoropt.errors import RankMismatchError
from tensoropt.frontend.job import first_rank


@dataclass
class Rank:
    """One rank of a group; the first one's answers are what all get."""

    rank: int
    answers: list[Any] = field(default_factory=list)

    def allgather_object(self, answer: Any) -> list[Any]:
        """The answers of the first rank."""
        if self.rank == 0:
            self.answers.append(answer)
        return self.answers[-1:]


def test_the_others_hear_how_the_first_rank_has_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_rank, "_LAST_WORDS_SECONDS", 0.0)
    first = Rank(0)
    with pytest.raises(SystemExit):
        first_rank.on_first_rank(cast(Group, first), lambda: sys.exit(3))
    with pytest.raises(
        RankMismatchError, match="error on the first rank, SystemExit: 3; let the error"
    ):
        first_rank.on_first_rank(cast(Group, Rank(1, first.answers)), lambda: None)
