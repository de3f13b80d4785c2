"""TensorFlow's counters of a process, from which it makes names that graphs contain.

The function of a loop, the token of a Python function, a table without a name: each has a number
that counts those made before it in the process. Ranks that build the same graphs have the same
names, unless one of them has built something more.
"""

from __future__ import annotations

from tensoropt.execution.agreement.agreement import Agreement
from tensoropt.tensorflow_private import ops, script_ops

__all__ = ["catch_up", "level", "name_counters"]


def name_counters() -> list[int]:
    """This process's counters. Reading them adds one to the first."""
    return [int(ops.uid()), int(script_ops._py_funcs._unique_id)]


def catch_up(counted: list[int]) -> None:
    """Advance this process's counters to the `name_counters` of another process."""
    names, functions = counted
    while ops.uid() < names:
        pass
    own = script_ops._py_funcs
    own._unique_id = max(own._unique_id, functions)


def level(agreement: Agreement, what: str) -> None:
    """Bring all ranks' counters to the highest, so that ranks give equal names again.

    It is called after ranks have built different things.

    Args:
        agreement: between the ranks; each of them calls.
        what: the things that the ranks have built, for error messages.
    """
    own = name_counters()
    everyone = agreement.gather(what, own)
    most = [max(counted) for counted in zip(*everyone, strict=True)]
    if own != most:
        catch_up(most)
