"""The machines themselves: links, cables, faults and what runs on them."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

from tests.machines import Link, MachinesError, machines, why_not


@pytest.mark.parametrize(
    ("text", "link"),
    [
        ("", Link()),
        ("rate 1gbit", Link(1e9)),
        ("rate 100mbit delay 0.1ms loss 5%", Link(1e8, 1e-4, 0.05)),
        ("delay 200us", Link(delay_seconds=2e-4)),
    ],
)
def test_a_link_from_text(text: str, link: Link) -> None:
    assert Link.parse(text) == link
    assert Link.parse(str(link)) == link


@pytest.mark.parametrize("text", ["rate", "rate 1", "rate ms", "speed 1gbit", "delay 1gbit", "1ms"])
def test_a_text_that_is_no_link(text: str) -> None:
    with pytest.raises(ValueError, match="a link is described by parts such as"):
        Link.parse(text)


def test_a_missing_command_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None if name == "tc" else name)
    assert why_not.__wrapped__() == "there is no command tc (packages util-linux, iproute2)"


def test_machines_have_names_memory_and_processes_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "shared").touch()
    with machines(2) as made:
        first, second = made.nodes
        assert made.run(first, ["hostname"]) == "m1\n"
        made.run(first, ["sh", "-c", "echo 1 >/dev/shm/number"])
        assert made.run(second, ["ls", "/dev/shm"]) == ""
        assert made.run(second, ["ls", str(tmp_path)]) == "shared\n"
        made.hide(tmp_path, second)
        assert made.run(second, ["ls", str(tmp_path)]) == ""
        made.run(second, ["sh", "-c", "sleep 100 >/dev/null 2>&1 &"])
        (process,) = made.processes(second)
        assert process.command == "sleep 100 "
        assert made.processes(first) == []
        made.run(second, ["sh", "-c", "(true & true) & true"])
        with pytest.raises(MachinesError, match="false failed"):
            made.run(second, ["false"])
    assert not Path(f"/proc/{process.pid}").exists()
    assert not made.folder.exists()


def test_ranks_and_their_output() -> None:
    program = ["sh", "-c", "echo $(hostname) $PMI_RANK; echo error >&2; exit $PMI_RANK"]
    with machines(2) as made:
        ended = made.mpirun(2, program).wait(30)
        assert ended.status != 0
        assert [ended.of_rank(rank) for rank in range(4)] == [
            ["m1 0"], ["m1 1"], ["m2 2"], ["m2 3"],
        ]  # fmt: skip
        assert ended.stderr.count("error") == 4
        job = made.mpirun(1, ["sleep", "100"])
        while not made.processes(made.nodes[1]):
            time.sleep(0.01)
        with pytest.raises(TimeoutError, match="ends within"):
            job.wait(0.1)


def test_a_machine_that_stops_or_ends() -> None:
    with machines(2) as made:
        second = made.nodes[1]
        made.run(second, ["sh", "-c", "sleep 100 >/dev/null 2>&1 &"])
        (process,) = made.processes(second)
        made.stop(second)
        assert _state(process.pid) == "T"
        made.go_on(second)
        assert _state(process.pid) == "S"
        assert made.run(made.nodes[0], ["cat", "/sys/class/net/eth0/operstate"]) == "up\n"
        made.down(second)
        assert made.run(second, ["cat", "/sys/class/net/eth0/operstate"]) == "down\n"
        made.end(second)
        while made.processes(second):
            time.sleep(0.01)


def _state(pid: int) -> str:
    """The state of a process once it is not running."""
    while True:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        if state != "R":
            return state
