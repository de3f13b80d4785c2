"""The command ``tensoropt``, in this process and as one of its own."""

from __future__ import annotations

import inspect
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tensoropt
from tensoropt import Plan, errors
from tensoropt.cli.main import main
from tensoropt.cli.plan import plan as plan_command
from tensoropt.cli.profiling import profiling
from tensoropt.cost.cluster import cluster_names
from tensoropt.frontend.job.dry_run import DryRun
from tensoropt.planner.options.planning_options import PlanningOptions
from tests.plan.small_plans import a_plan

ROOT = Path(__file__).resolve().parents[2]

SCRIPT = """
import sys
import tensoropt as tf

assert __name__ == "__main__"
tf.init(devices=2)
values = tf.placeholder(tf.float32, [None, 64], name="values")
weights = tf.get_variable("weights", [64, int(sys.argv[1])])
loss = tf.reduce_mean(tf.matmul(values, weights))
step = tf.GradientDescentOptimizer().minimize(loss)
print("devices", tf.size(), "arguments", sys.argv[1:])
plan = tf.find_strategy(batch_size=32)
try:
    tf.build_execution_graph(plan=plan)
except Exception:
    print("caught")
print("went on")
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    file = tmp_path / "train.py"
    file.write_text(SCRIPT)
    return file


def test_plan_prints_and_writes_what_the_script_would_run(
    script: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, page = tmp_path / "plan.json", tmp_path / "plan.html"
    before = list(sys.path), sys.argv
    own = ["--devices", "16", "--cluster", "2x8-v100", "--output", str(file), "--html", str(page)]
    status = main(["plan", str(script), *own, "--", "128", "--rate", "0.1", "--devices", "3"])
    out = capsys.readouterr().out
    assert status == 0, out
    assert (list(sys.path), sys.argv) == before
    assert not tensoropt.is_initialized()
    assert "devices 16 arguments ['128', '--rate', '0.1', '--devices', '3']" in out
    assert "went on" not in out
    assert "caught" not in out
    plan = Plan.load(file)
    assert (plan.devices, plan.cluster.name) == (16, "2x8-v100")
    assert plan.shapes == {"values": (32, 64)}
    for line in ("devices", "step", "memory", "frontier"):
        assert any(each.split()[:1] == [line] for each in out.splitlines())
    assert "costliest" in out or "all layers" in out
    assert str(plan) in out
    assert f"written to {file}" in out
    data = page.read_text("utf-8").split('id="data">')[1].split("</script>")[0]
    numbers = [point["number"] for point in json.loads(data)["points"]]
    assert len(numbers) == min(16, len(plan.frontier))
    assert {numbers[0], numbers[-1]} == {0, len(plan.frontier) - 1}
    assert main(["show", str(file)]) == 0
    shown = capsys.readouterr().out
    assert shown in out  # the same tables


def test_plan_has_the_options_of_find_strategy() -> None:
    """All but values to feed, measured candidates, and the limits of `tensoropt profiling`."""
    own = {parameter.name for parameter in plan_command.params}
    wanted = set(inspect.signature(tensoropt.find_strategy).parameters)
    assert wanted - own == {"feed_dict", "validate", "memory_limits_bytes"}
    assert "memory_limits_bytes" in {parameter.name for parameter in profiling.params}


def test_plan_is_not_made_for_a_folder_that_is_not_there(
    script: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "none" / "plan.json"
    assert main(["plan", str(script), "--devices", "2", "--output", str(file), "--", "8"]) == 1
    said = capsys.readouterr()
    assert "a plan is written into an existing folder. Got --output" in said.err
    assert "devices 2" not in said.out  # the script has not run


def test_plan_overrides_batch_and_memory(
    script: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # So small a step takes most of its memory for a moment only.
    monkeypatch.setattr("tensoropt.frontend.planning.training_step.dry_run_peak", lambda *_: None)
    arguments = ["plan", str(script), "--devices", "4", "--cluster", "2x8-v100"]
    file = tmp_path / "plan.json"
    seconds = ["--search-seconds", "none"]
    assert (
        main([*arguments, *seconds, "--batch-size", "4096", "--output", str(file), "--", "128"])
        == 0
    )
    free = Plan.load(file)
    assert free.shapes == {"values": (4096, 64)}
    least = min(memory for memory, _ in free.frontier)
    tensoropt.reset_default_graph()
    limit = ["--memory-limit", str(int(least * 1.1) + 1)]
    assert (
        main([*arguments, "--batch-size", "4096", *limit, "--output", str(file), "--", "128"]) == 0
    )
    assert Plan.load(file).memory_bytes == least
    tensoropt.reset_default_graph()
    capsys.readouterr()
    assert main([*arguments, "--memory-limit", "1KiB", "--", "128"]) == 1
    assert capsys.readouterr().err.startswith("tensoropt: InfeasibleError: a strategy takes")
    tensoropt.reset_default_graph()
    assert main([*arguments, "--pipeline", "1", "--schedule", "gpipe", "--", "128"]) == 1
    error = capsys.readouterr().err
    assert error.startswith("tensoropt: OptionError: schedule is the order in which microbatches")


def test_a_script_is_profiled_over_devices_and_limits(
    script: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = ["profiling", str(script), "--devices", "4", "--cluster", "2x8-v100"]
    limits = ["--memory-limits", "4KiB,8GiB", "--device-hour-cost", "2.5"]
    assert main([*own, "--parallelism", "2,1", *limits, "--", "8"]) == 0
    said, header, _, *rows, end = capsys.readouterr().out.splitlines()
    assert said == "devices 4 arguments ['8']"
    assert end.startswith("with 8,192.00 MiB")
    assert "scaling ends at 1 device" in end
    assert "limit (MiB)" in header
    assert "cost of 1M samples" in header
    assert [row.split()[:2] for row in rows] == [
        [str(count), limit] for count in (1, 2) for limit in ("0.00", "8,192.00")
    ]
    assert ["does not fit" in row for row in rows] == [True, False, True, False]
    both = [*own, *limits, "--memory-limit", "8GiB", "--", "8"]
    assert main(both) == 1
    out, err = capsys.readouterr()
    assert "a search has one memory limit, or a list of them" in err
    assert not out  # the script has not run


def test_plan_by_another_algorithm(
    script: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "plan.json"
    arguments = ["plan", str(script), "--devices", "4", "--cluster", "2x8-v100"]
    assert main([*arguments, "--algorithm", "tofu", "--output", str(file), "--", "128"]) == 0
    assert Plan.load(file).algorithm == "tofu"
    capsys.readouterr()
    with pytest.raises(SystemExit):
        main([*arguments, "--algorithm", "toffu", "--", "128"])
    out, err = capsys.readouterr()
    assert "devices 4" not in out  # the script has not run
    assert "tensoropt plan: error: an algorithm is one of ft, data_parallel, " in err


def test_plan_takes_a_point_of_the_frontier_that_the_table_shows(
    script: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TENSOROPT_PLANS", str(tmp_path / "plans"))
    file = tmp_path / "plan.json"
    arguments = ["plan", str(script), "--devices", "4", "--cluster", "2x8-v100", "--output"]
    assert main([*arguments, str(file), "--", "128"]) == 0
    plan = Plan.load(file)
    own = plan.point
    assert own is not None
    monkeypatch.setattr("tensoropt.planner.choose.chosen", None)  # nothing is searched
    for number in {0, own}:
        tensoropt.reset_default_graph()
        capsys.readouterr()
        assert main([*arguments, str(file), "--point", str(number), "--", "128"]) == 0
        assert main(["show", str(file), "--frontier"]) == 0
        (row,) = [line for line in capsys.readouterr().out.splitlines() if line[:1] == "*"]
        assert row.split()[1] == str(number)
        taken = Plan.load(file)
        assert (taken.memory_bytes, taken.point) == (plan.frontier[number][0], number)
        assert taken.runs_as(plan) == (number == own)
    tensoropt.reset_default_graph()
    assert main([*arguments, str(file), "--point", "99", "--", "128"]) == 1
    assert f"one of the {len(plan.frontier)} points of the frontier" in capsys.readouterr().err


def test_options_of_the_command_line_replace_those_of_the_script() -> None:
    limits = {"memory_limits_bytes": [8, 9], "parallelism": [1, 2]}
    script = PlanningOptions("profiling", **limits, epsilon=0.1, rewrite=True, steps=7)
    one = DryRun(2, options={"memory_limit_bytes": 5, "algorithm": "data_parallel"})
    replaced = one.replaced(script)
    assert (replaced.memory_limit_bytes, replaced.memory_limits_bytes) == (5, None)
    assert (replaced.epsilon, replaced.rewrite, replaced.steps) == (0, None, 7)
    measured = PlanningOptions("mini_cost", samples=8, deadline_seconds=1, validate=3, pipeline=2)
    table = DryRun(4, options={"parallelism": (2, 4)}, aim="profiling").replaced(measured)
    assert (table.option, table.samples, table.validate) == ("profiling", None, 0)
    assert (table.parallelism, table.stages) == ((2, 4), 2)


def test_plan_with_other_statistics_of_batch_normalisation(script: Path, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    arguments = ["plan", str(script), "--devices", "4", "--cluster", "2x8-v100"]
    assert main([*arguments, "--batch-norm", "local", "--output", str(file), "--", "128"]) == 0
    assert Plan.load(file).batch_norm == "local"


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("import tensoropt as tf; tf.init()", "before that; check its arguments"),
        ("import sys; sys.exit(2)", "with exit status 2 before that"),
    ],
)
def test_a_script_that_does_not_build(
    text: str, remedy: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "train.py"
    file.write_text(text)
    assert main(["plan", str(file), "--devices", "2"]) == 1
    error = capsys.readouterr().err
    assert "OptionError: a script to plan calls init, and find_strategy and" in error
    assert remedy in error


def test_errors_are_one_line_and_status_1(
    tmp_path: Path, script: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nothing = str(tmp_path / "nothing.py")
    for arguments, reason in (
        (
            ["plan", nothing, "--devices", "2"],
            f"OptionError: a script to plan is a Python file. Got {nothing!r}, which is not there",
        ),
        (
            ["check", str(tmp_path)],
            f"OptionError: a script to check is a Python file. Got {str(tmp_path)!r}, which is a f",
        ),
        (
            ["show", nothing],
            f"PlanError: a plan is a whole, readable JSON file. Got {nothing!r}: N",
        ),
        (
            ["plan", str(script), "--devices", "2", "--cluster", "moon", "--", "8"],
            "PlanError: a cluster is one of",
        ),
        (
            ["plan", str(script), "--devices", "17", "--cluster", "2x8-v100", "--", "8"],
            "LayoutError: a job spreads",
        ),
    ):
        assert main(arguments) == 1
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(f"tensoropt: {reason}")


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["fly"],
        ["plan"],
        ["plan", "train.py"],
        ["plan", "train.py", "--devices", "0"],
        ["plan", "train.py", "--devices", "two"],
        ["plan", "train.py", "--devices", "2", "--memory-limit", "8 apples"],
        ["plan", "train.py", "--devices", "2", "--batch-norm", "mine"],
        ["plan", "train.py", "--devices", "2", "--search-seconds", "0"],
        ["show"],
        ["show", "plan.json", "--colour"],
        ["clusters", "more"],
        ["run", "train.py"],
        ["run", "train.py", "-np", "0"],
        ["run", "train.py", "-np", "2", "--max-restarts", "-1"],
        ["run", "train.py", "-np", "2", "--binding", "numa"],
        ["run", "train.py", "-np", "2", "--threads", "0"],
    ],
)
def test_a_command_line_without_sense_is_status_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert "error: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (
            ["plan", "train.py", "--devices", "2", "--memory-limt", "1B"],
            "Got '--memory-limt'. Did you mean '--memory-limit'?",
        ),
        (["plan", "train.py", "--devces=2"], "Got '--devces'. Did you mean '--devices'?"),
        (["plan", "train.py", "--device", "2"], "Got '--device'. Did you mean '--devices'?"),
        (["check", "train.py", "--rate", "0.1"], "A script's own arguments come after `--`."),
        (["profile", "--fource"], "Got '--fource'. Did you mean '--force'?"),
        (
            ["profile", "train.py", "-x"],
            "option of `tensoropt profile` is one of --batch-size, ",
        ),
        (["fly"], "a subcommand of `tensoropt` is one of plan, frontier, profiling, check, "),
        (["profil"], "Got 'profil'. Did you mean 'profile'?"),
        (["clusters", "list", "--", "x"], "takes no further arguments. Got 'x'; drop them"),
        (["clusters", "--jso"], "is one of -h, --help. Got '--jso'."),
        (["plan", "train.py", "--devices", "two"], "--devices takes whole numbers from 1. Got 't"),
        (["plan", "train.py", "--devices", "2", "--parallelism", "2,x"], "Got 'x'; correct it"),
        (["plan", "train.py", "--devices", "2", "--pipeline", "0"], "'auto' or False. Got 0; "),
        (["run", "a.py", "-np", "2", "--host", "x"], "Got '--host'. Did you mean '--hosts'?"),
        (["show", "plan.json", "--hlp"], "Got '--hlp'. Did you mean '--help'?"),
    ],
)
def test_an_unknown_option_is_an_error_with_the_nearest_name(
    arguments: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert reason in capsys.readouterr().err


def test_a_job_that_cannot_be_started_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "train.py").touch()
    (tmp_path / "hosts").write_text("a two\n")
    plan = tmp_path / "plan.json"
    a_plan().save(plan)
    script = str(tmp_path / "train.py")
    for arguments, reason in (
        (["none.py", "-np", "2"], "a script to run is a Python file. Got 'none.py'"),
        ([script, "-np", "2", "--min-devices", "3"], "--min-devices is at most -np. Got 3 and 2"),
        ([script, "-np", "2", "--hosts", str(tmp_path / "hosts")], "Got 'a two'; correct the line"),
        ([script, "-np", "2", "--trace", script], "Got --trace '"),
        ([script, "-np", "2", "--plan", "none.json"], "Got 'none.json'"),
        ([script, "-np", "3", "--plan", str(plan)], "Got -np 3 with a plan for 2; start it with"),
    ):
        assert main(["run", *arguments]) == 1
        assert reason in capsys.readouterr().err


def test_clusters_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["clusters"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[2:]] == list(cluster_names())
    assert "2 x 8 V100-SXM2-16GB" in next(line for line in lines if line.startswith("2x8-v100"))


def test_as_a_module_it_starts_neither_mpi_nor_tensorflow_needlessly(
    python: Callable[..., Any], tmp_path: Path
) -> None:
    """`python -m tensoropt` under a launcher's environment, without any launcher."""
    paths = os.pathsep.join([str(tmp_path), str(ROOT)])
    environment = {"PYTHONPATH": paths, "PMI_RANK": "0", "PMI_SIZE": "4"}
    (tmp_path / "mpi4py.py").write_text("raise RuntimeError('MPI is started')")
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    plan = ("plan", script, "--devices", "2", "--", "8")
    done = python("-m", "tensoropt", *plan, env=environment)
    assert done.returncode == 0, done.stderr
    (tmp_path / "tensorflow.py").write_text("raise RuntimeError('TensorFlow is imported')")
    for argument, told in (("--version", tensoropt.__version__), ("clusters", "8-v100")):
        done = python("-m", "tensoropt", argument, env=environment, fresh=True)
        assert done.returncode == 0, done.stderr
        assert told in done.stdout


def test_commands_that_plan_hold_back_what_tensorflow_writes_as_it_starts(
    python: Callable[..., Any],
) -> None:
    program = "from tensoropt.cli.script_dry_run import hush_tensorflow; hush_tensorflow()"
    done = python("-c", program, env={"TENSOROPT_VERBOSE": ""}, fresh=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_errors_have_one_root() -> None:
    kinds = [getattr(errors, name) for name in errors.__all__]
    assert all(issubclass(kind, errors.TensorOptError) for kind in kinds)
