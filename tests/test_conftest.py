"""The fixtures ``mpirun`` and ``python``: they report what programs did, and leave none behind."""

from __future__ import annotations

import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

# Each rank writes its process id, then ignores the polite signal for longer than any test runs.
STUCK = """
import os, pathlib, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("stuck", flush=True)
pathlib.Path(sys.argv[1], str(os.getpid())).touch()
time.sleep(3600)
"""

# Fails if another run holds the folder.
ALONE = """
import os, sys, time
os.mkdir(sys.argv[1])
time.sleep(0.1)
os.rmdir(sys.argv[1])
"""


either_way = pytest.mark.parametrize("fresh", [False, True], ids=["forked", "fresh"])


@either_way
def test_reports_output_status_and_time(mpirun, fresh):
    program = "import os, sys; print(os.environ['OMP_NUM_THREADS'], sys.argv[1])"
    done = mpirun(2, "-c", program, "a", fresh=fresh)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["1", "a"] * 2
    assert done.seconds > 0


@either_way
def test_a_failing_rank_fails_the_run(mpirun, fresh):
    done = mpirun(2, "-c", "import sys; sys.exit('went wrong')", fresh=fresh)
    assert done.returncode != 0
    assert "went wrong" in done.stderr


@either_way
def test_env_reaches_the_ranks_and_the_repository_is_importable(mpirun, tmp_path, fresh):
    script = tmp_path / "script.py"
    script.write_text("import os, tensoropt; print(os.environ['COLOUR'], tensoropt.__file__)")
    done = mpirun(1, script, env={"COLOUR": "green"}, fresh=fresh)
    assert done.returncode == 0, done.stderr
    colour, where = done.stdout.split(maxsplit=1)
    assert colour == "green"
    assert Path(where.strip()).parent.parent == Path(__file__).resolve().parent.parent


@either_way
def test_a_run_that_hangs_is_killed_with_its_ranks(mpirun, tmp_path, fresh):
    with pytest.raises(TimeoutError, match="within 8 s") as caught:
        mpirun(2, "-c", STUCK, tmp_path, timeout=8, fresh=fresh, waits=True)
    assert "stuck" in str(caught.value)
    ranks = [int(path.name) for path in tmp_path.iterdir()]
    assert len(ranks) == 2
    deadline = time.monotonic() + 300  # A killed process takes a moment to go.
    while any(map(_runs, ranks)):
        assert time.monotonic() < deadline, f"still running: {list(filter(_runs, ranks))}"
        time.sleep(0.05)


def test_runs_take_turns(mpirun, tmp_path):
    with ThreadPoolExecutor(3) as pool:
        runs = [pool.submit(mpirun, 1, "-c", ALONE, tmp_path / "busy") for _ in range(3)]
    assert [run.result().stderr for run in runs] == [""] * 3


def test_a_program_without_a_launcher(python, tmp_path):
    program = "import os, sys; print(os.getcwd(), sys.argv[1:], 'PMI_RANK' in os.environ)"
    done = python("-c", program, "a", "b", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{tmp_path} ['a', 'b'] False\n"
    assert python("-c", "import sys; sys.exit(3)").returncode == 3
    killed = python("-c", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    assert killed.returncode == -signal.SIGKILL


def test_programs_see_nothing_of_each_other(python):
    change = "import tensorflow; print(tensorflow.executing_eagerly()); "
    change += "import tensoropt; tensoropt.enable_graph_mode(); tensorflow.changed = True"
    for _ in range(2):
        done = python("-c", change)
        assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr
    assert python("-c", "import tensorflow; tensorflow.changed").returncode == 1
    draw = "import numpy, random; print(random.random(), numpy.random.random())"
    assert len({python("-c", draw).stdout for _ in range(3)}) == 3


def test_ranks_differ_in_the_order_of_sets(mpirun):
    done = mpirun(2, "-c", "print([*map(str, {*map(str, range(20))})])")
    assert len(set(done.stdout.splitlines())) == 2


def _runs(pid: int) -> bool:
    """Whether a process is there and is more than a zombie that nobody has collected yet."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (ProcessLookupError, FileNotFoundError):
        return False
    return state != "Z"
