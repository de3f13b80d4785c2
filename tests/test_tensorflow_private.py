"""The ceiling on TensorFlow's version, and that each private module has its reason."""

from __future__ import annotations

import re
import warnings
from importlib.metadata import version
from pathlib import Path

import pytest

from tensoropt import tensorflow_private
from tensoropt.tensorflow_private import REASONS, UNTESTED_VERSION, warn_of_untested

ROOT = Path(__file__).resolve().parent.parent


def test_each_private_module_has_its_reason() -> None:
    helpers = {"REASONS", "UNTESTED_VERSION", "warn_of_untested"}
    assert set(REASONS) == set(tensorflow_private.__all__) - helpers
    assert all(hasattr(tensorflow_private, name) for name in REASONS)


def test_the_ceiling_is_that_of_the_package() -> None:
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    assert re.findall(r'"tensorflow>=[\d.]+,<([\d.]+)"', text) == [UNTESTED_VERSION]


def test_the_installed_version_is_below_it_and_others_are_warned_of() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_untested(version("tensorflow"))
    for newer in (UNTESTED_VERSION, f"{UNTESTED_VERSION}.0rc1", "3.0.1"):
        with pytest.warns(UserWarning, match=f"Got {newer}"):
            warn_of_untested(newer)
