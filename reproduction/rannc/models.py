"""The models of RaNNC's evaluation by name, and the systems in the tables."""

from __future__ import annotations

from typing import Any

__all__ = ["ALL", "OTHER_BLOCKS", "QUICK", "SYSTEMS", "WITHOUT_BLOCKS", "Line"]

Line = dict[str, Any]
"""The results for a model as JSON values."""

SYSTEMS = (
    "data parallelism",
    "megatron",
    "tensor split",
    "gpipe",
    "rannc",
    "galvatron",
    "alpa",
    "ours",
)
"""The systems in the order of the tables; all use all devices."""

BERTS = tuple(
    f"{layers}x{width}" for width in (1024, 1536, 2048) for layers in (24, 48, 96, 144, 192, 256)
)
ALL = (*BERTS, "resnet50x8", "resnet101x8", "resnet152x8")
QUICK = ("24x1024", "48x1024", "96x1024", "96x1536", "256x2048")

WITHOUT_BLOCKS = ("24x1024", "48x1024", "96x1024")
"""Models for which stages are also made of atomic components."""

OTHER_BLOCKS = dict.fromkeys((*WITHOUT_BLOCKS, "96x2048"), (8, 16, 64))
"""Numbers of blocks that are tried beside 32."""
