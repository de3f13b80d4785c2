"""A dimension that is divided by hand, in a user's words."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["WHOLE", "FixedDimension"]

WHOLE = "whole"
"""The word for a dimension that no level divides."""


@dataclass(frozen=True, slots=True)
class FixedDimension:
    """A dimension of some layers that is divided by hand, in a user's words.

    Attributes:
        pattern: the layers, by a glob pattern of their names.
        dimension: its name, such as "batch" or "columns"; "columns then rows" for either of them;
            a number for a dimension of the layers' outputs.
        levels: the levels of the cluster that divide it, such as "device", or "device/2" for two
            parts over the groups of a level. All other levels leave it whole.
    """

    pattern: str
    dimension: str
    levels: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.pattern}:{self.dimension}={','.join(self.levels) or WHOLE}"
