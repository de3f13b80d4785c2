"""What ranks are told when they differ, without ranks."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import numpy as np
import pytest

from tensoropt.errors import RankMismatchError
from tensoropt.execution.agreement.agreement import Agreement, explain

RUN = ["run(loss:0)", "feed_dict of 'x', shape [8]"]


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ([RUN, RUN, ["run(step)"]], "Got run(step) on rank 2, but run(loss:0) on ranks 0 and 1."),
        ([["run(step)"], RUN, RUN], "Got run(step) on rank 0, but run(loss:0) on ranks 1 and 2."),
        ([RUN, ["run(step)"]], "Got run(step) on rank 1, but run(loss:0) on rank 0."),
        (
            [["a"], RUN, ["b"], RUN, ["a"]],
            "Got run(loss:0) on ranks 1 and 3, but a on ranks 0 and 4.",
        ),
        (
            [RUN, RUN, [RUN[0], "feed_dict of 'x', shape [4]"]],
            "Got in run(loss:0) as the first difference `feed_dict of 'x', shape [4]` on rank 2, "
            "but `feed_dict of 'x', shape [8]` on ranks 0 and 1.",
        ),
        (
            [RUN, [*RUN, "feed_dict of 'y', shape []"]],
            "as the first difference `feed_dict of 'y', shape []` on rank 1, but `nothing more` on "
            "rank 0.",
        ),
        ([RUN, RUN[:1]], "`nothing more` on rank 1, but `feed_dict of 'x', shape [8]` on rank 0."),
        ([["c", "a", "x", "z"], ["c", "a", "y", "w"]], "difference `y` on rank 1, but `x` on"),
    ],
)
def test_the_first_difference_and_the_ranks_are_named(
    said: Sequence[Sequence[str]], message: str
) -> None:
    text = explain(said, "Do so.")
    assert message in text
    assert text.startswith("every rank runs the same program")
    assert text.endswith(("Do so.", "before the others."))


def test_long_lines_are_cut() -> None:
    text = explain([["c", "a" * 10_000], ["c", "b" * 10_000]])
    assert len(text) < 1000


class Together:
    """Members of a group in threads: only what `Agreement` asks of one."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._barrier = Barrier(size)
        self._values: list[Any] = [None] * size

    def member(self, rank: int) -> Any:
        together = self

        class Member:
            size = together.size

            def allgather_object(self, value: Any) -> list[Any]:
                together._values[rank] = value
                together._barrier.wait(10)
                values = list(together._values)
                together._barrier.wait(10)
                return values

            def allgather(self, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
                return np.concatenate(self.allgather_object(array))

        return Member()


def checks(calls: Sequence[tuple[str, list[str]]], parts: Sequence[int] = ()) -> list[str | None]:
    """What each rank's check raises; with ``parts`` the details of these are compared."""
    together = Together(len(calls))

    def check(rank: int) -> str | None:
        agreement = Agreement(together.member(rank))
        try:
            if parts:
                agreement.check_parts(calls[rank][0], parts[rank], calls[rank][1])
            else:
                agreement.check(*calls[rank], remedy="Do so.")
        except RankMismatchError as error:
            return str(error)
        return None

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(check, range(len(calls))))


def test_ranks_that_agree_go_on() -> None:
    assert checks([("run(loss)", ["a", "b"])] * 3) == [None] * 3


def test_ranks_that_differ_all_raise_the_same() -> None:
    texts = checks(
        [("run(loss)", ["a", "b"]), ("run(loss)", ["a", "c"]), ("run(loss)", ["a", "b"])]
    )
    assert len(set(texts)) == 1
    assert texts[0] is not None
    assert "`c` on rank 1, but `b` on ranks 0 and 2. Do so." in texts[0]


def test_ranks_of_a_part_agree_among_themselves() -> None:
    said = [("run(loss)", [line]) for line in ("a", "b", "c", "c", "c")]
    assert checks([said[0], said[0], *said[2:4]], (0, 0, 1, 1)) == [None] * 4
    texts = checks([said[0], said[0], said[1], *said[2:4]], (0, 0, 1, 1, 1))
    assert len(set(texts)) == 1
    assert texts[0] is not None
    assert "`b` on rank 2, but `c` on ranks 3 and 4." in texts[0]


def test_one_process_agrees_with_itself() -> None:
    Agreement(None).check("run(loss)", ["a"])
