"""The folder of compiled kernels where neither the package nor the user's cache can be written."""

from __future__ import annotations

import os
from pathlib import Path

import numba
import pytest

from tensoropt.kernel_folder import find_kernel_folder


def test_kernels_are_kept_for_this_process_where_no_folder_can_be_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", "")
    monkeypatch.setattr(numba.config, "CACHE_DIR", "")
    find_kernel_folder()
    assert not numba.config.CACHE_DIR
    monkeypatch.setattr(os, "access", lambda *_: False)
    find_kernel_folder()
    folder = Path(numba.config.CACHE_DIR)
    assert folder.is_dir()
    assert os.environ["NUMBA_CACHE_DIR"] == str(folder)
    find_kernel_folder()
    assert str(folder) == numba.config.CACHE_DIR
