"""How far a step's real peak may be above a peak that no dry run has told."""

from __future__ import annotations

__all__ = ["ESTIMATE", "SUM"]

ESTIMATE = 1.3
"""Bound on the peak of a dry run over `tensoropt.cost.peak.estimated_peak`; the largest ratio that
was measured is 1.10 (docs/memory.md)."""
SUM = 4.0
"""Likewise over the sum that a search adds up; 3.0 is the most that was found there."""
