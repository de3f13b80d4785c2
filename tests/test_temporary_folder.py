"""Folders of processes that are killed are removed by the next process; folders in use stay."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tensoropt.temporary_folder import temporary_folder

ENDS = """
import os, signal, sys
from tensoropt.temporary_folder import temporary_folder
with temporary_folder() as folder:
    (folder / "file").touch()
    print(folder, flush=True)
    if sys.argv[1:] == ["killed"]:
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_no_folder_stays(
    python: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    in_here = {"TMPDIR": str(tmp_path)}
    killed = python("-c", ENDS, "killed", env=in_here)
    assert list(tmp_path.iterdir()) == [Path(killed.stdout.strip())]
    with temporary_folder() as own:
        assert list(tmp_path.iterdir()) == [own]
        ended = python("-c", ENDS, env=in_here)
        assert Path(ended.stdout.strip()).parent == tmp_path
        assert list(tmp_path.iterdir()) == [own]
    assert not list(tmp_path.iterdir())
