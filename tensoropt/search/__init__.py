"""The search for the cost frontier of a computation graph: integers in, frontiers out.

Importing this package imports no solver, and no compiler of kernels; the first use of a name does.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tensoropt.problem.model import Edge, Node, Problem
    from tensoropt.search.find import frontier_tracking
    from tensoropt.search.pareto.frontier import Frontier, FrontierPoint

__all__ = [
    "Edge",
    "Frontier",
    "FrontierPoint",
    "Node",
    "Problem",
    "frontier_tracking",
]

_MODULES = {
    "frontier_tracking": "tensoropt.search.find",
    "Frontier": "tensoropt.search.pareto.frontier",
    "FrontierPoint": "tensoropt.search.pareto.frontier",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES.get(name, "tensoropt.problem.model")), name)
