"""The environment variables that ``tensoropt run`` sets for ranks."""

from __future__ import annotations

__all__ = [
    "PLAN_AHEAD_VARIABLE",
    "PLAN_VARIABLE",
    "RESTARTS_VARIABLE",
    "THREADS_VARIABLE",
    "TRACE_VARIABLE",
]

RESTARTS_VARIABLE = "TENSOROPT_RESTARTS"
"""Environment variable of each rank under ``tensoropt run``: the earlier starts of the job."""

THREADS_VARIABLE = "TENSOROPT_THREADS"
"""Environment variable: the number of compute threads of each rank."""

PLAN_VARIABLE = "TENSOROPT_PLAN"
"""Environment variable: a plan file that `find_strategy` returns instead of a search."""

TRACE_VARIABLE = "TENSOROPT_TRACE"
"""Environment variable: folder for a timeline of each rank's steps."""

PLAN_AHEAD_VARIABLE = "TENSOROPT_PLAN_AHEAD"
"""Environment variable: the present start, and those to plan for in advance; see
`elastic.next_starts`."""
