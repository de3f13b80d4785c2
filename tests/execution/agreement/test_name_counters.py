"""Ranks give equal names again once their counters are advanced."""

from __future__ import annotations

from typing import Any

import tensorflow
from tensorflow.python.framework import ops

from tensoropt.execution.agreement.name_counters import advance_name_counters, name_counters

v1 = tensorflow.compat.v1


def token() -> int:
    """The number of the next Python function in a graph."""
    with v1.Graph().as_default():
        made: Any = v1.numpy_function(lambda: 1, [], tensorflow.int64)
    return int(made.op.get_attr("token").decode().removeprefix("pyfunc_"))


def test_lower_counters_are_advanced() -> None:
    names, functions = name_counters()
    advance_name_counters([names + 100, functions + 7])
    assert ops.uid() == names + 101
    assert token() == functions + 7


def test_higher_counters_stay() -> None:
    names, functions = name_counters()
    advance_name_counters([names - 50, functions - 1])
    assert names < ops.uid() <= names + 2
    assert token() == functions
