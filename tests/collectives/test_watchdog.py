"""What a watchdog says of a collective that takes long, by a clock that the test sets."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from collectives.errors import TransportError
from collectives.watchdog import (
    ABORT_VARIABLE,
    WARN_VARIABLE,
    Limits,
    Wait,
    Watchdog,
    about,
    limits,
)

RANKS = (0, 1, 2)


class Job:
    """The watchdogs of three processes."""

    def __init__(self, limits: Limits, hosts: tuple[str, ...] = ("m1", "m1", "m1")) -> None:
        self.now = 0.0
        self.said: list[str] = []
        self.aborted: list[int] = []
        self.mail: dict[int, list[tuple[int, bytes]]] = {rank: [] for rank in RANKS}
        self.dogs = [Watchdog(limits, lambda: self.now, self.said.append) for _ in RANKS]
        for rank, dog in enumerate(self.dogs):
            dog.connect(Post(self, rank), hosts)

    def pass_time(self, seconds: float, running: tuple[int, ...] = RANKS) -> None:
        for _ in range(int(seconds * 4)):
            self.now += 0.25
            for rank in running:
                self.dogs[rank].look()


class Post:
    """A transport that appends messages to lists."""

    def __init__(self, job: Job, rank: int) -> None:
        self.rank = rank
        self._job = job

    def send(self, rank: int, message: bytes) -> None:
        self._job.mail[rank].append((self.rank, message))

    def received(self) -> Iterator[tuple[int, bytes]]:
        while self._job.mail[self.rank]:
            yield self._job.mail[self.rank].pop(0)

    def abort(self) -> None:
        self._job.aborted.append(self.rank)


def test_nothing_is_said_or_sent_before_the_limit() -> None:
    job = Job(Limits(60, 0))
    with job.dogs[0].waiting("allreduce", RANKS):
        job.pass_time(59)
        assert not any(job.mail.values())
    job.pass_time(10)
    assert not job.said


def test_the_ranks_that_have_not_come_are_named_once() -> None:
    job = Job(Limits(60, 0))
    with ExitStack() as stack:
        stack.enter_context(about("the gradient of w"))
        stack.enter_context(job.dogs[1].waiting("allreduce", RANKS))
        stack.enter_context(job.dogs[2].waiting("allreduce", RANKS))
        job.pass_time(200)
    (said,) = job.said
    assert said.startswith(
        "rank 1 has waited 64 s in 'the gradient of w', a collective of ranks 0, 1, 2. Not there: "
        "rank 0, which is in no collective"
    )
    assert "It goes on waiting; COLLECTIVES_ABORT_SECONDS=SECONDS would end the job" in said
    job.pass_time(1)
    assert job.said[1] == "rank 1 goes on after 200 s in 'the gradient of w'"


def test_another_collective_and_a_stopped_rank() -> None:
    job = Job(Limits(60, 0))
    with ExitStack() as stack:
        stack.enter_context(job.dogs[0].waiting("allreduce", RANKS))
        with about("run(loss:0)"):
            stack.enter_context(job.dogs[1].waiting("allgather", RANKS))
        job.pass_time(65, running=(0, 1))
    said = job.said[0]
    assert (
        "rank 0 has waited 64 s in 'allreduce', a collective of ranks 0, 1, 2. Not there:" in said
    )
    assert "rank 1, which waits in 'run(loss:0)';" in said
    assert "rank 2, which does not answer (stopped, stuck or out of reach)" in said
    assert "rank 1 has waited 64 s in 'run(loss:0)'" in job.said[1]


def test_a_message_that_does_not_come_is_its_senders() -> None:
    job = Job(Limits(10, 0))
    with ExitStack() as stack, about("receive activations"):
        stack.enter_context(job.dogs[1].waiting("receive", (0, 1), 0))
        job.pass_time(15, running=(0, 1))
    assert "rank 1 has waited" in job.said[0]
    assert "s in 'receive activations', for a message: rank 0, which is in no coll" in job.said[0]
    assert "has not sent it. It goes on waiting" in job.said[0]


def test_of_a_row_of_ranks_that_wait_the_last_tells_why() -> None:
    job = Job(Limits(0, 10))
    with ExitStack() as stack:
        stack.enter_context(job.dogs[0].waiting("receive gradients", (0, 1), 1))
        stack.enter_context(job.dogs[1].waiting("receive more gradients", (1, 2), 2))
        while not job.aborted:
            job.pass_time(1, running=(0, 1))
    assert job.aborted[0] == 1
    assert "rank 1 has waited" in job.said[0]
    assert "for a message: rank 2, which does not answer" in job.said[0]


def test_the_job_ends_at_the_limit_for_that() -> None:
    job = Job(Limits(10, 100))
    waits = Wait("a sum", RANKS, 0.0)
    job.dogs[0].add(lambda: waits)
    job.pass_time(99)
    assert len(job.said) == 1
    assert not job.aborted
    job.pass_time(10)
    assert "rank 0 has waited 104 s in 'a sum'" in job.said[1]
    assert "The job ends, by COLLECTIVES_ABORT_SECONDS=100" in job.said[1]
    assert job.aborted == [0]


def test_a_rank_that_does_not_answer_ends_the_job_and_one_that_computes_does_not() -> None:
    job = Job(Limits(0, 0, 20))
    with job.dogs[1].waiting("allreduce", RANKS), job.dogs[2].waiting("allreduce", RANKS):
        job.pass_time(500)
        assert not job.said + job.aborted
        job.pass_time(50, running=(1, 2))
    (said,) = job.said
    assert "rank 0, which does not answer (stopped, stuck or out of reach)" in said
    assert said.endswith("The job ends, by COLLECTIVES_LOST_SECONDS=20")
    assert set(job.aborted) == {1, 2}


def test_limits_are_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(WARN_VARIABLE, raising=False)
    monkeypatch.delenv(ABORT_VARIABLE, raising=False)
    assert limits() == (60.0, 0.0, 0.0)
    monkeypatch.setenv(ABORT_VARIABLE, "7.5")
    assert limits() == (60.0, 7.5, 0.0)
    for text in ("soon", "-1", "nan", "inf"):
        monkeypatch.setenv(WARN_VARIABLE, text)
        with pytest.raises(TransportError, match=r"is a number of seconds, 0 for never\. Got"):
            limits()


def test_machines_are_named_where_there_are_several() -> None:
    job = Job(Limits(60, 0), ("m1", "m2", "m2"))
    with job.dogs[0].waiting("allreduce", RANKS):
        job.pass_time(70, running=(0,))
    (said,) = job.said
    assert said.startswith("rank 0 on m1 has waited 64 s in 'allreduce'")
    assert "rank 2 on m2, which does not answer" in said
    assert "No rank on m2 answers: see to machine and network. It goes on waiting" in said


def test_a_machine_answers_if_one_of_its_ranks_does() -> None:
    job = Job(Limits(60, 0), ("m1", "m2", "m2"))
    with job.dogs[0].waiting("allreduce", RANKS):
        job.pass_time(70, running=(0, 1))
    (said,) = job.said
    assert "rank 1 on m2, which is in no collective" in said
    assert "rank 2 on m2, which does not answer" in said
    assert "No rank on" not in said


def test_a_rank_that_waits_for_a_waiting_rank_leaves_the_reason_to_it() -> None:
    job = Job(Limits(0, 60))
    with ExitStack() as stack:
        stack.enter_context(job.dogs[0].waiting("allreduce", (0, 1)))
        stack.enter_context(job.dogs[1].waiting("reduce_scatter", (1, 2)))
        while not job.aborted:
            job.pass_time(0.25, running=(0, 1))
            assert job.now < 70
    assert job.aborted == [1]
    (said,) = job.said
    assert "Not there: rank 2, which does not answer" in said


def test_one_of_several_groups_says_that_a_machine_is_silent() -> None:
    job = Job(Limits(0, 60), ("m1", "m1", "m2"))
    with ExitStack() as stack:
        stack.enter_context(job.dogs[0].waiting("allreduce", (0, 2)))
        stack.enter_context(job.dogs[1].waiting("allreduce", (1, 2)))
        while not job.aborted:
            job.pass_time(0.25, running=(1, 0))
            assert job.now < 70
    assert job.aborted == [0]
    (said,) = job.said
    assert "No rank on m2 answers" in said
