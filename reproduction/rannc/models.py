"""The models of RaNNC's evaluation by name, and the systems in the tables."""

from __future__ import annotations

from typing import Any

__all__ = [
    "ALL",
    "ANY_STAGES",
    "EVERY",
    "OTHER_BLOCKS",
    "QUICK",
    "SYSTEMS",
    "WITHOUT_BLOCKS",
    "Line",
]

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
ANY_STAGES = "rannc of any number of stages"
"""RaNNC's search if it took the fastest number of stages, not the fewest that fit."""
EVERY = (*SYSTEMS, "without blocks")
"""The systems of the paper's claims; further ones are `ANY_STAGES`, and "frontier", the fastest
pipeline of replicated stages."""

BERTS = tuple(
    f"{layers}x{width}" for width in (1024, 1536, 2048) for layers in (24, 48, 96, 144, 192, 256)
)
ALL = (*BERTS, "resnet50x8", "resnet101x8", "resnet152x8")
QUICK = ("24x1024", "48x1024", "96x1024", "96x1536", "256x2048")

WITHOUT_BLOCKS = ("24x1024", "48x1024", "96x1024")
"""Models for which stages are also made of atomic components."""

OTHER_BLOCKS = dict.fromkeys((*WITHOUT_BLOCKS, "96x2048"), (8, 16, 64))
"""Numbers of blocks that are tried beside 32."""
