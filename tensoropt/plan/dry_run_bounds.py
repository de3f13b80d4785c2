"""Factors between the peak of a dry run and figures that need no dry run."""

from __future__ import annotations

__all__ = ["ESTIMATE", "OVER", "SUM"]

ESTIMATE = 1.3
"""Assumed bound on dry run / `tensoropt.cost.peak.estimated_peak`; the largest ratio that was
measured is 1.10 (docs/memory.md)."""
OVER = 1.5
"""Assumed bound on `tensoropt.cost.peak.estimated_peak` / dry run; the largest ratio that was
measured is 1.39 (docs/memory.md)."""
SUM = 4.0
"""Assumed bound on dry run / the sum that a search adds up; the largest ratio that was measured is
3.0 (docs/memory.md)."""
