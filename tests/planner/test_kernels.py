"""The kernels that are compiled ahead are all that planning calls."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

# Searched in one process, which has a kernel's types from when it is loaded, compiled or not.
_CALLS = """
import json, sys
from dataclasses import replace

import numba.extending

from tensoropt.planner.kernels import load_kernels

def types():
    return {
        f"{kernel.py_func.__module__}.{name}{signature}"
        for module in list(sys.modules.values())
        if module.__name__.startswith("tensoropt.")
        for name, kernel in vars(module).items()
        if numba.extending.is_jitted(kernel)
        for signature in kernel.signatures
    }

load_kernels()
ahead = types()

from benchmarks.search.zoo.catalogue import ZOO
from benchmarks.search.zoo.measuring import request_of
from tensoropt.cost.cluster import load_cluster
from tensoropt.planner.searches.frontier_search import search_frontier
from tensoropt.planner.choose import choose
from tensoropt.planner.request import PipelineNumbers

for name in ("decoder", "penalty", "unet"):
    made = request_of(name, ZOO[name].small, load_cluster("2x8-v100"), 4)
    request = replace(made, search_seconds=4.0)
    search_frontier(request, 4)
    if name == "decoder":
        choose(replace(request, pipeline=PipelineNumbers(stages=2)), "mini_time")
print(json.dumps([len(ahead), sorted(types() - ahead)]))
"""


@pytest.mark.slow
def test_searches_call_no_kernel_that_is_not_compiled_ahead(python: Callable[..., Any]) -> None:
    done = python("-c", _CALLS)
    assert done.returncode == 0, done.stderr
    count, others = json.loads(done.stdout.splitlines()[-1])
    assert count > 20
    assert others == []
