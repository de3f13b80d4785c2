"""The modules that draw, print and explain plans, which are above this package in the layers."""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["explaining_module", "report_module"]


def report_module() -> Any:
    """Return `tensoropt.report.of_plans`, imported when a plan is first drawn or printed."""
    return importlib.import_module("tensoropt.report.of_plans")


def explaining_module() -> Any:
    """Return `tensoropt.frontend.planning.points_of_frontier`, imported at the first call."""
    return importlib.import_module("tensoropt.frontend.planning.points_of_frontier")
