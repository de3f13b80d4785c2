"""``tensoropt profile`` on two ranks: measured, used again, refused when damaged; and shorter where
ranks share cores."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from collectives.bandwidth.matrices import KINDS, RUNS
from tensoropt.cost.machine_profile import Profile

SCRIPT = """
import tensoropt as tf

tf.init()
print("the script runs")
values = tf.placeholder(tf.float32, [None, 16], name="values")
weights = tf.get_variable("weights", [16, 8])
loss = tf.reduce_mean(tf.nn.relu(tf.matmul(values, weights)))
step = tf.GradientDescentOptimizer(0.1).minimize(loss)
tf.find_strategy(batch_size=32)
"""

CROWDED = """
from pathlib import Path
from sys import argv

from collectives import world
from tensoropt.cost.measuring.measure import Measurer
from tensoropt.cost.machine_profile import Profile, Setting
from tensoropt.frontend.job.hardware import hardware_of, rank_config

setting = Setting("any", 1, (2,), "2", "any")  # a core for two ranks
config = rank_config(hardware_of(world()))
measurer = Measurer(world(), Profile(setting, (2,)), Path(argv[1]), config, lambda *_: None)
measurer.collectives(measurer.wanted(1 << 16))
measurer.finish()
"""

PROFILED = """
import shutil
from sys import argv, stdout

import tensoropt
from collectives import world
from tensoropt.cli.main import main
from tensoropt.cost.measuring.measure import Measurer
from tensoropt.frontend.measuring import profile_measurement, reference_steps

late = [0]
clock, operators = profile_measurement.monotonic, Measurer.operators

def slow_operators(*arguments):
    late[0] += 10000  # the network has seconds of its own
    return operators(*arguments)

profile_measurement.monotonic = reference_steps.monotonic = lambda: clock() + late[0]
Measurer.operators = slow_operators

def profile(name):
    tensoropt.reset_default_graph()
    script, file = f"{argv[1]}/{name}.py", f"{argv[1]}/{name}.json"
    limits = ("--largest", "16B", "--seconds", "1", "--network-seconds", "1000")
    return main(("profile", script, *limits, "--output", file))

tensoropt.enable_graph_mode()
for name in ("failing", "limited", "small"):
    if world().rank == 0:
        print("profile of", name)
    assert profile(name) == 0
if world().rank == 0:
    shutil.copy(f"{argv[1]}/small.py", f"{argv[1]}/changed.py")
    text = open(f"{argv[1]}/small.json").read()
    with open(f"{argv[1]}/changed.json", "w") as file:
        file.write(text.replace('"complete": true', '"complete": false'))
world().barrier()
stdout.flush()  # the job ends here
profile("changed")
"""

Mpirun = Callable[..., Any]


def test_two_ranks_measure_what_they_will_run(mpirun: Mpirun, tmp_path: Path) -> None:
    script, file = tmp_path / "train.py", tmp_path / "profile.json"
    script.write_text(SCRIPT)
    command = ("tensoropt", "profile", script, "--largest", "32B", "--output", file)
    first = mpirun(2, "-m", *command)
    assert first.returncode == 0, first.stderr
    assert first.stdout.count("the script runs") == 1
    profile = Profile.load(file)
    assert profile.complete
    assert profile.mesh == (2,)
    assert profile.setting.mpi
    ways = {f"{kind} {runs[0]}" for kind, runs in RUNS.items()}  # of small pieces, one is all
    assert {table.kind for table in profile.tables()} == {*KINDS, *ways}
    for table in profile.tables():
        assert table.axes == (0,)
        assert table.bytes == (16, 32)
    products = [each.work for each in profile.operators if each.work.operator == "MatMul"]
    shapes = {work.local_shapes for work in products}
    assert shapes == {
        ((32, 16), (16, 8)),  # redundant
        ((16, 16), (16, 8)),  # rows
        ((32, 8), (8, 8)),  # partial sums
        ((32, 16), (16, 4)),  # columns
    }
    assert "in steps of training under 6 strategies, operators take" in first.stdout
    assert len({step.graph for step in profile.steps}) == 1
    assert profile.steps[0].calls  # data parallelism sums gradients
    kinds = {move.kind for step in profile.steps for call in step.calls for move in call.moves}
    assert kinds <= set(KINDS)
    assert profile.in_steps().computing > 0
    assert [step.microbatches for step in profile.steps] == [1] * 6 + [4]


def test_steps_that_are_not_measured_are_told(mpirun: Mpirun, tmp_path: Path) -> None:
    """Steps that fail, and that fit no memory; the limit of a script is not heeded. At the end a
    changed profile is refused."""
    failing = "tf.matmul(tf.debugging.check_numerics(tf.log(-values), 'it is'),"
    small = "from tensoropt.planner.request import Request\nRequest.usable_bytes = lambda *_: 100\n"
    scripts = {
        "failing": SCRIPT.replace("tf.matmul(values,", failing),
        "limited": SCRIPT.replace("size=32", "size=32, memory_limit_bytes=100"),
        "small": small + SCRIPT,
    }
    for name, script in scripts.items():
        (tmp_path / f"{name}.py").write_text(script)
    finished = mpirun(2, "-c", PROFILED, tmp_path)
    _, *texts = finished.stdout.split("profile of ")
    said = {text.partition("\n")[0]: text for text in texts}
    profiles = {name: Profile.load(tmp_path / f"{name}.json") for name in scripts}
    assert all(profile.complete and profile.operators for profile in profiles.values())
    not_measured = "steps of the script were not measured: "
    assert not_measured in said["failing"]
    assert "it is: Tensor had NaN" in said["failing"]
    assert not profiles["failing"].steps
    assert not_measured not in said["limited"]
    assert {step.microbatches for step in profiles["limited"].steps} == {1, 4}
    assert f"{not_measured}at least one of the" in said["small"]
    assert "profile with a smaller --batch-size" in said["small"]
    assert not profiles["small"].steps
    assert finished.returncode != 0
    assert finished.stderr.count("changed afterwards") == 1


def test_ranks_that_share_a_core_measure_fewer_sizes(mpirun: Mpirun, tmp_path: Path) -> None:
    script, file = tmp_path / "crowded.py", tmp_path / "profile.json"
    script.write_text(CROWDED)
    finished = mpirun(2, script, file)
    assert finished.returncode == 0, finished.stderr
    tables = {table.kind: table for table in Profile.load(file).tables()}
    assert set(tables) == {*KINDS, *(f"{kind} {way}" for kind in RUNS for way in RUNS[kind])}
    assert tables["allreduce"].bytes == (16, 64, 256, 1024, 4096, 1 << 14, 1 << 15, 1 << 16)
    assert tables["allgather"].bytes == (16, 64, 256, 1024, 4096, 1 << 14, 1 << 16)
    assert tables["alltoall short"].bytes == (1 << 14, 1 << 16)
    for table in tables.values():
        assert min(table.nanoseconds) > 0
