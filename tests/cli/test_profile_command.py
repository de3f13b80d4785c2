"""``tensoropt profile`` in this process: one rank, so no collectives."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

import tensoropt
from collectives import world
from tensoropt.cli.main import main
from tensoropt.cost.machine_profile import Profile
from tensoropt.cost.measuring import measure_operators
from tensoropt.cost.measuring.measure_operators import timed_in_turn
from tensoropt.errors import PlanError
from tensoropt.frontend.job.hardware import Hardware
from tensoropt.frontend.job.job import current
from tensoropt.frontend.job.profile_files import (
    PROFILE_VARIABLE,
    profile_for,
    profile_path,
    setting_of,
)
from tensoropt.frontend.measuring import links
from tensoropt.json_files import digest_of
from tensoropt.report.machine_profile_tables import collective_table, overhead_line
from tensoropt.report.progress_bar import progress_bar

SCRIPT = """
import tensoropt as tf

tf.init()
values = tf.placeholder(tf.float32, [None, 16], name="values")
weights = tf.get_variable("weights", [16, 8])
loss = tf.reduce_mean(tf.nn.relu(tf.matmul(values, weights)))
step = tf.train.MomentumOptimizer(0.1, 0.9).minimize(loss)
tf.find_strategy(batch_size=32)
"""

TWO_LAYERS = """
import tensoropt as tf

tf.init()
values = tf.placeholder(tf.float32, [None, 256], name="values")
for layer in range(2):
    values = tf.matmul(values, tf.get_variable(f"weights{layer}", [256, 256]))
step = tf.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_mean(values))
tf.find_strategy(batch_size=32)
"""


def run(*arguments: str) -> int:
    """The command with a graph of its own, as in a process of its own."""
    tensoropt.reset_default_graph()
    return main(arguments)


@pytest.fixture(scope="module")
def profile_text(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A profile of the script's operators, measured once."""
    folder = tmp_path_factory.mktemp("measured")
    script, file = folder / "train.py", folder / "profile.json"
    script.write_text(SCRIPT)
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert run("profile", str(script), "--output", str(file), "--seconds", "3000") == 0
    assert f": {file}" in out.getvalue()
    assert "us a step" in out.getvalue()
    tensoropt.shutdown()
    return file.read_text()


@pytest.fixture
def measured(profile_text: str, tmp_path: Path) -> Path:
    """The profile in a file, beside the script."""
    file = tmp_path / "profile.json"
    (tmp_path / "train.py").write_text(SCRIPT)
    file.write_text(profile_text)
    return file


def test_a_script_s_operators_are_measured_once(
    measured: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    profile = Profile.load(measured)
    assert profile.complete
    assert not profile.skipped
    timed = {each.work.operator: each for each in profile.operators}
    assert {"MatMul", "Relu", "Mean", "ResourceApplyMomentum"} <= set(timed)
    assert timed["MatMul"].work.local_shapes == ((32, 16), (16, 8))
    assert timed["MatMul"].work.differentiated_inputs == 1
    assert timed["MatMul"].forward_nanoseconds > 0
    assert timed["ResourceApplyMomentum"].backward_nanoseconds == 0
    before = measured.read_bytes()
    assert run("profile", str(tmp_path / "train.py"), "--output", str(measured)) == 0
    assert "nothing to measure" in capsys.readouterr().out
    assert measured.read_bytes() == before


def test_gradients_are_timed_by_the_kernels_of_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The backward pass of a product runs `BatchMatMulV2`, TensorFlow's gradient `MatMul`."""
    types: set[str] = set()

    def noted(*arguments: Any) -> Any:
        types.update(each.type for each in tf.compat.v1.get_default_graph().get_operations())
        return timed_in_turn(*arguments)

    monkeypatch.setattr(measure_operators, "timed_in_turn", noted)
    script = tmp_path / "train.py"
    script.write_text(TWO_LAYERS)
    arguments = "--output", str(tmp_path / "profile.json"), "--seconds", "3000"
    assert run("profile", str(script), *arguments) == 0
    assert "BatchMatMulV2" in types


def test_a_damaged_profile_is_measured_again_only_by_force(
    measured: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    measured.write_text(measured.read_text()[:-50])
    arguments = ["profile", str(tmp_path / "train.py"), "--output", str(measured)]
    assert run(*arguments) == 1
    assert "PlanError: a profile is a whole, readable JSON file" in capsys.readouterr().err
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(os, "getloadavg", lambda: (17.3, 1.0, 1.0))
    assert run(*arguments, "--force") == 0
    warning = capsys.readouterr().err
    assert "its numbers are noisy. Got a load average of 17.3 on 2 cores of " in warning
    assert "; end other programs, and measure with --force." in warning
    assert Profile.load(measured).complete


def test_an_interrupted_profile_goes_on(measured: Path, tmp_path: Path) -> None:
    whole = Profile.load(measured)
    values = whole.to_json()
    kept = values["operators"][:2]
    partial = Profile.from_json(
        Profile(whole.setting, whole.mesh, overheads=whole.overheads).to_json(), "partial"
    )
    partial = Profile(
        partial.setting, partial.mesh, overheads=partial.overheads, operators=whole.operators[:2]
    )
    partial.save(measured)
    assert run("profile", str(tmp_path / "train.py"), "--output", str(measured)) == 0
    again = Profile.load(measured)
    assert again.complete
    assert len(again.operators) == len(whole.operators)
    assert again.to_json()["operators"][:2] == kept


def test_plans_are_made_with_the_profile_of_this_machine(
    measured: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PROFILE_VARIABLE, str(measured))
    tensoropt.reset_default_graph()
    tensoropt.init()
    values = tensoropt.placeholder(tensoropt.float32, [None, 16], name="values")
    weights = tensoropt.get_variable("weights", [16, 8])
    tensoropt.train.MomentumOptimizer(0.1, 0.9).minimize(
        tensoropt.reduce_mean(tensoropt.nn.relu(tensoropt.matmul(values, weights)))
    )
    profile = Profile.load(measured)
    assert current().profile_at(1) == profile
    plan = tensoropt.find_strategy(batch_size=32)
    product = next(each for each in profile.operators if each.work.operator == "MatMul")
    planned = next(each for each in plan.operators if each.type == "MatMul")
    assert planned.time_nanoseconds == product.time.total
    assert profile.overheads is not None
    own = sum(operator.time_nanoseconds for operator in plan.operators)
    assert plan.time_nanoseconds == own + profile.overheads.step_nanoseconds
    assert "Measured on" in plan.cluster.description


def test_a_foreign_profile_is_refused_unless_forced(
    measured: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PROFILE_VARIABLE, str(measured))
    two = setting_of(Hardware((2,), 2, 2**30), 2)
    with pytest.raises(PlanError, match=r"ranks_per_host \(1,\) instead of \(2,\)"):
        profile_for(two)
    monkeypatch.setenv("TENSOROPT_PROFILE_FORCE", "1")
    assert profile_for(two) is not None


def test_profiles_are_kept_in_the_user_s_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting = setting_of(Hardware((2,), 2, 2**30), 2)
    monkeypatch.delenv(PROFILE_VARIABLE)
    monkeypatch.delenv("TENSOROPT_PROFILES", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    path = profile_path(setting)
    assert path == tmp_path / "tensoropt" / "profiles" / setting.file_name
    assert profile_for(setting) is None
    monkeypatch.setenv("TENSOROPT_PROFILES", str(tmp_path / "here"))
    assert profile_path(setting).parent == tmp_path / "here"


def test_a_folder_that_may_not_be_looked_into_has_no_measurements(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(PROFILE_VARIABLE)
    monkeypatch.setenv("TENSOROPT_PROFILES", f"/{'long' * 100}")
    setting = setting_of(Hardware((2,), 2, 2**30), 2)
    assert profile_for(setting) is None
    assert links._kept(world(), profile_path(setting)) is None


def test_a_profile_that_is_not_complete_is_not_planned_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    setting = setting_of(Hardware((2,), 2, 2**30), 2)
    monkeypatch.delenv(PROFILE_VARIABLE)
    monkeypatch.setenv("TENSOROPT_PROFILES", str(tmp_path))
    Profile(setting, (2,)).save(profile_path(setting))
    assert profile_for(setting) is None
    assert "is not complete" in capsys.readouterr().err


def test_a_folder_that_cannot_be_made_is_named_before_it_is_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    assert run("profile", "--output", str(tmp_path / "file" / "profile.json")) == 1
    error = capsys.readouterr().err
    assert f"a folder that can be written. Got '{tmp_path}/file'" in error
    assert "name a file by --output, or another folder in TENSOROPT_PROFILES" in error


def test_arguments_without_a_script_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("profile", "--seconds", "1", "--", "--speed") == 1
    assert "a script to profile is a Python file. Got '--speed'" in capsys.readouterr().err


class Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_the_bar_is_drawn_on_terminals_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("TERM", "xterm")
    terminal, file = Terminal(), io.StringIO()
    for stream in (terminal, file):
        bar = progress_bar(stream)
        bar("", 0, 0)  # nothing to remove
        bar("allgather [0]", 1, 2)
        bar("a label that is longer than the rest of the line", 2, 2)
        bar("", 0, 0)
    assert file.getvalue() == ""
    text = re.sub(r"\x1b\[[?0-9;]*[A-Za-z]", "", terminal.getvalue())
    first, *_, last = (line.strip() for line in re.split(r"[\r\n]+", text) if line.strip())
    assert first.endswith("0/2 allgather [0]")
    assert "2/2 a label that" in last
    assert len(last) <= 60


def test_sizes_are_shown_in_their_units(measured: Path) -> None:
    values = Profile.load(measured).to_json()
    values["mesh"] = [2]
    common = {"kind": "allreduce", "runs": "", "axes": [0], "spread": 0.0, "outliers": 0}
    values["collectives"] = [
        {**common, "wanted_bytes": size, "bytes": size, "nanoseconds": 2**10}
        for size in (16, 2**14, 2**21)
    ]
    profile = Profile.from_json(json.loads(json.dumps(_signed(values))), "here")
    line = str(collective_table(profile)).splitlines()[-1]
    assert "1.0 (16 B)" in line
    assert "1.0 (16 KiB)" in line
    assert "1.0 (2 MiB)" in line
    assert line.endswith("2048.00")


def _signed(values: dict[str, object]) -> dict[str, object]:
    """Return the values of a file with their digest."""
    return {**values, "digest": digest_of(values)}


def test_a_noisy_profile_says_so_and_names_the_remedy(measured: Path) -> None:
    profile = Profile.load(measured)
    quiet = tuple(replace(each, spread=0.1) for each in profile.operators)
    wide = tuple(replace(each, spread=0.3) for each in profile.operators)
    for noisy in (len(wide) // 4, len(wide) // 4 + 1):
        line = overhead_line(replace(profile, operators=wide[:noisy] + quiet[noisy:]))
        assert f"{noisy} of {len(wide)} measurements spread by more than 20%" in line
        assert ("this profile is noisy" in line) == (noisy > len(wide) // 4)
    assert "end other programs" in line
    assert "measure again with --force" in line
