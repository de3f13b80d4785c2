"""TensorFlow's counters of a process, from which it makes names in graphs.

TensorFlow numbers functions of loops, tokens of Python functions, and tables without a name, in the
order in which the process makes them. Ranks that build the same graphs therefore have the same
names, unless a rank has built something else, too.
"""

from __future__ import annotations

from tensoropt.execution.agreement.agreement import Agreement
from tensoropt.tensorflow_private import ops, script_ops

__all__ = ["advance_name_counters", "equalise_name_counters", "name_counters"]


def name_counters() -> list[int]:
    """Return this process's counters. Reading them adds one to the first."""
    return [int(ops.uid()), int(script_ops._py_funcs._unique_id)]


def advance_name_counters(counters: list[int]) -> None:
    """Advance this process's counters to the `name_counters` of another process."""
    names, functions = counters
    while ops.uid() < names:
        pass
    registry = script_ops._py_funcs
    registry._unique_id = max(registry._unique_id, functions)


def equalise_name_counters(agreement: Agreement, call: str) -> None:
    """Advance all ranks' counters to the highest, so that ranks give equal names again.

    All ranks call this after they have emitted different operations.

    Args:
        agreement: the agreement between the ranks.
        call: the text for the operations that the ranks have emitted, for error messages.
    """
    counters = name_counters()
    highest = [max(of_ranks) for of_ranks in zip(*agreement.gather(call, counters), strict=True)]
    if counters != highest:
        advance_name_counters(highest)
