"""The supervisor's decisions, with a launcher that starts nothing."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tensoropt.elastic.end_reasons import Ending
from tensoropt.elastic.hosts import Host
from tensoropt.elastic.state import State, StateFile
from tensoropt.elastic.supervisor import TOO_FEW_STATUS, Limits, Supervisor, after_loss
from tensoropt.errors import OptionError, PlanError

COMMAND = ("python", "train.py")
LIMITS = Limits(4, 1, 3, 60.0)
KILLED = (
    "=   PID 7 RUNNING AT {}\n=   EXIT CODE: 9\n=   CLEANING UP REMAINING PROCESSES\n"
    "===\nYOUR APPLICATION TERMINATED WITH THE EXIT STRING: Killed (signal 9)\n"
)
BUG = "tensoropt: rank 1 ends the job, after ValueError.\n"


@dataclass
class Start:
    """What happens in one start: its status, output and checkpoints, and when.

    Attributes:
        ends_at: seconds until the end; a signal ends it before.
        then: called at the end, for what happens to machines.
    """

    status_at_end: int = 0
    printed: str = ""
    checkpoints: int = 0
    ends_at: float = 1.0
    then: Callable[[], None] = lambda: None
    clock: Callable[[], float] = lambda: 0.0
    signals: list[int] = field(default_factory=list)

    def status(self) -> int | None:
        if self.signals:
            return 128 + self.signals[0]
        if self.clock() < self.ends_at:
            return None
        self.then()
        return self.status_at_end

    def output(self) -> str:
        return self.printed

    def send(self, number: int) -> None:
        self.signals.append(number)


class Fake:
    """A launcher and its clock; the hosts in ``off`` do not answer."""

    def __init__(self, *starts: Start) -> None:
        self.starts, self.off = list(starts), set[str]()
        self.hosts = [Host("a", 2), Host("b", 2)]
        self.now, self.begun = 0.0, 0.0
        self.lines: list[str] = []
        self.started: list[str] = []
        self.restarts: list[str] = []
        self.ahead: list[str | None] = []
        self.events: list[tuple[float, Callable[[], None]]] = []

    def start(self, hosts: Sequence[Host], environment: Mapping[str, str]) -> Start:
        run, self.begun = self.starts[len(self.started)], self.now
        run.clock = lambda: self.now - self.begun
        self.started.append(" ".join(map(str, hosts)))
        self.restarts.append(environment["TENSOROPT_RESTARTS"])
        self.ahead.append(environment.get("TENSOROPT_PLAN_AHEAD"))
        assert float(environment["COLLECTIVES_LOST_SECONDS"]) > 0
        return run

    def answering(self, names: Sequence[str]) -> frozenset[str]:
        return frozenset(names) - self.off

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        time.sleep(0)  # for the thread that asks hosts
        for when, event in list(self.events):
            if when <= self.now:
                self.events.remove((when, event))
                event()

    def run(
        self, limits: Limits = LIMITS, path: Path | None = None, plans_ahead: bool = False
    ) -> int:
        supervisor = Supervisor(
            self, lambda: self.hosts, limits, StateFile(path), self.lines.append,
            lambda: self.now, self.sleep, plans_ahead,
        )  # fmt: skip
        return supervisor.run(COMMAND)


def test_a_killed_rank_is_started_again_and_a_lost_machine_left_out(tmp_path: Path) -> None:
    fake = Fake(
        Start(9, KILLED.format("b"), checkpoints=1),
        Start(-9, "", then=lambda: fake.off.add("b")),
        Start(0),
    )
    assert fake.run(path=tmp_path / "state") == 0
    assert fake.started == ["a:2 b:2", "a:2 b:2", "a:2"]
    assert fake.restarts == ["0", "1", "2"]
    assert fake.lines == [
        "start 1 on 4 devices: a:2, b:2",
        "start 1 ended after 1 s and 1 checkpoint: Killed (signal 9) on b",
        "start 2 on 4 devices: a:2, b:2",
        "start 2 ended after 1 s and 0 checkpoints: the launcher was ended by signal 9",
        "b does not answer and is left out",
        "start 3 on 2 devices: a:2",
        "the script has ended, after 3 starts",
    ]
    assert not (tmp_path / "state").exists()


def test_ranks_are_told_the_starts_that_may_follow() -> None:
    fake = Fake(Start(9, KILLED.format("b"), 1, then=lambda: fake.off.add("b")), Start(0))
    assert fake.run(plans_ahead=True) == 0
    assert fake.ahead == ["2,2;0,2;2,0", ""]
    assert "no plan is searched ahead: no start follows on fewer machines of this one" in fake.lines
    fake = Fake(Start(0))
    assert fake.run() == 0
    assert fake.ahead == [None]


def test_a_spare_takes_the_place_of_a_lost_machine() -> None:
    fake = Fake(Start(9, KILLED.format("a"), 1, then=lambda: fake.off.add("a")), Start(0))
    fake.hosts.append(Host("c", 4))
    assert fake.run() == 0
    assert fake.started == ["a:2 b:2", "b:2 c:2"]


def test_a_machine_that_comes_back_is_taken_in_at_the_next_checkpoint() -> None:
    fake = Fake(long := Start(0, ends_at=1e6), Start(0))
    fake.off.add("b")
    fake.events.append((100.0, lambda: fake.off.discard("b")))
    for when in range(140, 1000, 20):
        fake.events.append((when, lambda: setattr(long, "checkpoints", long.checkpoints + 1)))
    assert fake.run() == 0
    assert fake.started == ["a:2", "a:2 b:2"]
    assert long.signals == [signal.SIGTERM]
    assert "b can be used: the next checkpoint takes it to 4 devices" in fake.lines
    assert 140 <= fake.begun < 1000


@pytest.mark.parametrize(
    ("starts", "status", "reason"),
    [
        ([Start(1, BUG)], 1, "the script failed by itself, and before a new checkpoint"),
        ([Start(1, BUG, 2), Start(1, BUG)], 1, "before a new checkpoint"),
        ([Start(3)], 3, "before a new checkpoint"),
        ([Start(15, "tensoropt: a rank ends the job before init, ...\n")], 15, "by itself"),
        ([Start(9, KILLED.format("x"))] * 4, 9, "4 starts in a row saved no checkpoint"),
    ],
)
def test_a_failure_that_repeats_ends_the_job(
    starts: list[Start], status: int, reason: str, tmp_path: Path
) -> None:
    fake = Fake(*starts)
    assert fake.run(path=tmp_path / "state") == status
    assert len(fake.started) == len(starts)
    assert reason in fake.lines[-1]
    assert not (tmp_path / "state").exists()


def test_a_host_where_two_starts_in_a_row_are_lost_is_left_out() -> None:
    fake = Fake(*[Start(9, KILLED.format("b.site"))] * 2, Start(0))
    assert fake.run() == 0
    assert fake.started == ["a:2 b:2", "a:2 b:2", "a:2"]
    enough = Fake(*[Start(9, KILLED.format("b"))] * 2, Start(0))
    assert enough.run(Limits(4, 3, 3, 60.0)) == 0
    assert enough.started == ["a:2 b:2"] * 3


def test_too_few_devices_are_waited_for() -> None:
    fake = Fake(Start(0))
    fake.off.add("b")
    fake.events.append((20.0, lambda: fake.off.discard("b")))
    assert fake.run(Limits(4, 4, 3, 60.0)) == 0
    assert fake.lines[1] == "2 of at least 4 devices answer: waits for more, 60 s at most"
    assert fake.started == ["a:2 b:2"]
    never = Fake()
    never.off |= {"a", "b"}
    assert never.run() == TOO_FEW_STATUS
    assert 60 <= never.now < 66


def test_a_job_that_is_asked_to_end_goes_on_from_its_state(tmp_path: Path) -> None:
    path = tmp_path / "state"
    fake = Fake(Start(9, KILLED.format("a"), 2), last := Start(0, checkpoints=1, ends_at=1e6))
    fake.events.append((9.0, lambda: signal.raise_signal(signal.SIGTERM)))
    assert fake.run(path=path) == 128 + signal.SIGTERM
    assert last.signals == [signal.SIGTERM]
    assert fake.lines[-1] == "the job ends with status 143, since SIGTERM came"
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    assert StateFile(path).read(COMMAND) == State(2, 3, command=COMMAND)
    with pytest.raises(OptionError, match="of the same job"):
        StateFile(path).read(("python", "other.py"))
    again = Fake(Start(0))
    assert again.run(path=path) == 0
    assert again.restarts == ["2"]
    path.write_text("{}")
    with pytest.raises(PlanError, match="Remove the file to count from 0"):
        StateFile(path).read(COMMAND)


def test_hosts_that_cannot_be_read_again_stay_and_a_state_that_cannot_be_written_is_an_error(
    tmp_path: Path,
) -> None:
    fake = Fake(Start(9, KILLED.format("a"), 1), Start(0))

    def hosts() -> list[Host]:
        if fake.started:
            raise OptionError("--hosts is a file of hosts. Got nothing")
        return fake.hosts

    supervisor = Supervisor(
        fake, hosts, LIMITS, StateFile(None), fake.lines.append, lambda: fake.now, fake.sleep
    )
    assert supervisor.run(COMMAND) == 0
    assert fake.started == ["a:2 b:2"] * 2
    assert "the hosts stay as they are: --hosts is a file of hosts. Got nothing" in fake.lines
    with pytest.raises(OptionError, match="a file that can be written"):
        StateFile(tmp_path / "none" / "state").write(State())


def test_an_attempt_with_a_checkpoint_sets_the_count_to_zero() -> None:
    lost = Ending(9, "killed", is_lost=True, host="a")
    before = State(5, 2, fruitless=3, suspect="a")
    assert after_loss(before, lost, 1, False, LIMITS) == (State(5, 3), "")
    after, reason = after_loss(before, lost, 0, False, LIMITS)
    assert after.fruitless == 4
    assert reason
