"""The filter of a rank's standard error, in this process and around programs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tensoropt.errors import OptionError
from tensoropt.quiet.chatter import Filter
from tensoropt.quiet.standard_error import LOG_VARIABLE, VERBOSE_VARIABLE, filter_standard_error

ROOT = Path(__file__).resolve().parents[2]

CHATTER = b"""\
2026-11-29 07:15:21.626429: I tensorflow/core/util/port.cc:153] oneDNN custom operations are on.
2026-11-29 07:15:21.7: E external/local_xla/xla/cuda_fft.cc:477] Unable to register cuFFT factory
WARNING: All log messages before absl::InitializeLog() is called are written to STDERR
E0000 00:00:1795936521.890138   27077 cuda_dnn.cc:8310] Unable to register cuDNN factory: twice
I0000 00:00:1795936583.729632   27077 mlir_graph_optimization_pass.cc:401] MLIR V1 is not enabled
2026-11-29 07:15:54.284079: E external/cuda_driver.cc:152] failed call to cuInit: INTERNAL: 303
To enable the following instructions: AVX2 AVX512F, rebuild TensorFlow
2026-11-29 07:16:47.4: W tensorflow/root_dataset.cc:362] Optimization loop failed: CANCELLED: it was
E0000 00:00:1795936583.8   27077 cupti_tracer.cc:9] GPU trace was not collected: no device
WARNING:tensorflow:From train.py:3: The name tf.Session is deprecated. Use tf.compat.v1.Session.
WARNING:tensorflow:From a.py:4: f (from m) is deprecated and will be removed in a future version.
Instructions for updating:
Use g.
\x1ftensoropt: a note
"""
SHOWN = b"""\
2026-11-29 07:15:21.626429: E tensorflow/core/framework/op.cc:1] OP_REQUIRES failed
2026-11-29 07:15:21.626429: W tensorflow/core/gpu_device.cc:2] Cannot dlopen some GPU libraries
E0000 00:00:1795936521.890138   27077 cuda_dnn.cc:8310] out of memory
F0000 00:00:1795936583.749180   27076 check.cc:1] Check failed
WARNING:tensorflow:Gradients do not exist for variables ['w']
Traceback (most recent call last):
  File "train.py", line 1, in <module>
ValueError: 12 is not 13
tensoropt: plan mini_time on 2 devices
1/8 [==>      ]\r2/8 [====>    ]
\x1etensoropt checkpoint\x1e
"""


def filtered(content: bytes, size: int, is_quiet: bool = True) -> tuple[bytes, bytes]:
    """What a filter shows and keeps of content that comes in parts of a size."""
    shown, kept = bytearray(), bytearray()
    lines = Filter(shown.extend, kept.extend, is_quiet)
    for start in range(0, len(content), size):
        lines.take(content[start : start + size])
    lines.flush()
    return bytes(shown), bytes(kept)


@pytest.mark.parametrize("size", [1, 7, 64, 10_000])
def test_chatter_is_held_back_and_nothing_else(size: int) -> None:
    both = CHATTER + SHOWN + CHATTER
    assert filtered(both, size) == (SHOWN, both.replace(b"\x1f", b""))
    assert filtered(both, size, is_quiet=False)[0] == both.replace(b"\x1f", b"")


def test_a_line_without_an_end_is_shown() -> None:
    assert filtered(b"Epoch 1", 2)[0] == b"Epoch 1"
    assert filtered(b"2026 is a year", 100)[0] == b"2026 is a year"


def rank(program: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[bytes]:
    """A rank of several, as a launcher starts it, without the others."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PMI_RANK": "1", "PMI_SIZE": "2"}
    environment |= {VERBOSE_VARIABLE: "0", LOG_VARIABLE: str(folder / "run.log"), **variables}
    command = [sys.executable, "-c", program]
    return subprocess.run(command, capture_output=True, env=environment, timeout=60)


PROGRAM = "import os, tensoropt\nos.write(2, {!r})\n"


@pytest.mark.parametrize("end", ["os.abort()", "raise ValueError('of the script')", "os._exit(3)"])
def test_a_rank_that_dies_has_written_its_last_lines(end: str, tmp_path: Path) -> None:
    done = rank(PROGRAM.format(CHATTER + SHOWN) + end, tmp_path)
    assert done.returncode
    assert done.stderr.startswith(SHOWN)
    assert (b"ValueError: of the script" in done.stderr) == end.startswith("raise")
    log = (tmp_path / "run.1.log").read_bytes()
    assert log.startswith((CHATTER + SHOWN).replace(b"\x1f", b""))
    assert log.endswith(done.stderr[-100:])


def test_one_rank_of_a_launcher_writes_as_few_lines(tmp_path: Path) -> None:
    done = rank(PROGRAM.format(CHATTER + SHOWN), tmp_path, PMI_RANK="0", PMI_SIZE="1")
    assert done.stderr == SHOWN
    assert (tmp_path / "run.0.log").exists()


WITHOUT = """\
import os, sys
from tensoropt.quiet.standard_error import without_chatter
with without_chatter():
    os.write(2, {!r})
    if sys.argv[1:]:
        os.abort()
os.write(2, b"I0000 00:00:1.1 1 after it\\n")
"""


@pytest.mark.parametrize("aborts", [False, True])
def test_chatter_is_held_back_for_a_while(aborts: bool) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), VERBOSE_VARIABLE: ""}
    command = [sys.executable, "-c", WITHOUT.format(CHATTER + SHOWN), *["abort"] * aborts]
    done = subprocess.run(command, capture_output=True, env=environment, timeout=60)
    assert bool(done.returncode) == aborts
    rest = b"" if aborts else b"I0000 00:00:1.1 1 after it\n"
    assert done.stderr == SHOWN + rest


@pytest.mark.parametrize(
    "program",
    [
        "from tensoropt.quiet.standard_error import without_chatter as it\nwith it(): pass",
        "from tensoropt.quiet.standard_error import filter_standard_error as it\nit('0')",
    ],
)
def test_without_standard_error_there_is_nothing_to_hold_back(program: str) -> None:
    closed = ["sh", "-c", 'exec "$0" -c "$1" 2>&-', sys.executable, program]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    assert subprocess.run(closed, env=environment, timeout=60).returncode == 0


PLAN = """\
import tensoropt
from tensoropt.quiet.standard_error import write_note, write_plan
write_note("a note")
write_plan("a plan", 1)
"""


def test_the_line_of_a_plan_counts_the_notes_that_are_not_shown(tmp_path: Path) -> None:
    done = rank(PLAN, tmp_path)
    assert done.stderr == b"tensoropt: a plan; 1 note with TENSOROPT_VERBOSE=1\n"
    done = rank(PLAN, tmp_path, **{VERBOSE_VARIABLE: "1"})
    assert done.stderr == b"tensoropt: a note\ntensoropt: a plan\n"
    alone = {name: text for name, text in os.environ.items() if not name.startswith("PMI_")}
    alone |= {"PYTHONPATH": str(ROOT), LOG_VARIABLE: str(tmp_path / "alone.log")}
    command = [sys.executable, "-c", PLAN]
    done = subprocess.run(command, capture_output=True, env=alone, timeout=60)
    assert done.stderr == b"tensoropt: a note\ntensoropt: a plan\n"


def test_verbose_holds_back_nothing(tmp_path: Path) -> None:
    done = rank(PROGRAM.format(CHATTER), tmp_path, **{VERBOSE_VARIABLE: "1", LOG_VARIABLE: ""})
    assert done.stderr == CHATTER
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("variable", "value"), [(LOG_VARIABLE, "none/run.log"), (VERBOSE_VARIABLE, "yes")]
)
def test_variables_without_sense_are_errors(
    variable: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(OptionError, match=rf"{variable} is .* Got '{value}'; "):
        filter_standard_error("0")


def test_ranks_of_keras_write_few_lines(mpirun: Callable[..., Any], tmp_path: Path) -> None:
    """A small model of Keras: at most five lines that are not Keras's."""
    example = (ROOT / "tests" / "frontend" / "keras_example_program.py").read_text("utf-8")
    script = tmp_path / "train.py"
    for text, other in (("epochs=3", "epochs=1"), ("model.keras", f"{tmp_path}/model.keras")):
        assert text in example
        example = example.replace(text, other)
    script.write_text(example)
    quiet = {VERBOSE_VARIABLE: "", "TF_CPP_MIN_LOG_LEVEL": "0"}
    done = mpirun(2, script, env=quiet, fresh=True)
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()
    assert 1 <= len(lines) <= 5
    assert all(line.startswith("tensoropt: ") for line in lines)
    assert sum(line.startswith("tensoropt: plan mini_time on 2 devices") for line in lines) == 1
    assert "loss: " in done.stdout
