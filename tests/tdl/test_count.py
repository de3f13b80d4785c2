"""``python -m tensoropt.tdl --count``."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tensoropt.tdl import described
from tensoropt.tdl.__main__ import common_operators, count, main


def test_at_least_260_types_are_described() -> None:
    """Each registered type is run in pieces by test_kernels.py, so this is what is verified."""
    assert len(described()) >= 260
    assert count().startswith(f"{len(described())} operator types are described")


def test_every_common_computation_is_described() -> None:
    common = common_operators()
    computing = {name for name, (kind, _) in common.used.items() if kind == "computation"}
    assert computing <= set(described())
    assert {kind for kind, _ in common.used.values()} == set(common.kinds)
    assert max(programs for _, programs in common.used.values()) <= common.programs


def test_what_is_not_described_is_listed_with_its_kind(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--count"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "  computation (computes on tensors): none" in lines
    (control,) = (line for line in lines if line.startswith("  control flow"))
    assert "While (7)" in control


def test_the_command_says_what_it_can_do() -> None:
    with pytest.raises(SystemExit, match="2"):
        main([])


def test_counting_needs_no_tensorflow() -> None:
    program = (
        "import sys; sys.modules['tensorflow'] = None\n"
        "from tensoropt.tdl.__main__ import main; sys.exit(main(['--count']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{len(described())} operator types")
