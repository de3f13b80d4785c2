"""The ways to train a network."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

__all__ = ["PLAIN", "REVERSED", "WAYS"]

PLAIN, REVERSED = "plain TensorFlow", "plain, examples reversed"
WAYS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "data_parallel": {"algorithm": "data_parallel"},
        "mini_time": {},
        "pipeline": {"pipeline": 2, "microbatches": 4},
        "rewriting": {"rewrite": True},
        "bfloat16": {"algorithm": "data_parallel", "compression": "bf16"},
    }
)
"""The options of `find_strategy` for each way. Gradients are rounded between machines alone."""
