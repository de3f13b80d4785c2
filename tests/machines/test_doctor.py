"""The doctor's questions to several machines."""

from __future__ import annotations

import json
import sys

from tests.machines import machines

PROGRAM = """
import json
from dataclasses import asdict
from tensoropt.cli.doctor.checks import machines
from tensoropt.elastic.hosts import Host
for names in ("m1 m2", "m1 m9"):
    found = [asdict(each) for each in machines([Host(name, 2) for name in names.split()])]
    print(json.dumps([[each[key] for key in ("state", "found")] for each in found]))
"""


def test_a_rank_is_started_on_each_machine_that_answers() -> None:
    with machines(2) as made:
        job = made.start([sys.executable, "-c", PROGRAM], made.launcher_variables)
        all_there, one_there = map(json.loads, job.wait(120).stdout.splitlines())
    assert [state for state, _ in all_there] == ["works", "works"]
    assert all_there[0][1] == "2 answer: m1, m2"
    assert all_there[1][1].startswith("a rank on each of 2 sent a value to all, Python 3.")
    assert [state for state, _ in one_there] == ["fails", "works"]
    assert one_there[0][1] == "1 of 2 answer, not m9"
