"""The module that draws and prints plans, which is above this package in the layers."""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["for_people"]


def for_people() -> Any:
    """Return `tensoropt.report.of_plans`, imported when a plan is first drawn or printed."""
    return importlib.import_module("tensoropt.report.of_plans")
