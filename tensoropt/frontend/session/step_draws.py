"""The counters of the random operators in parallel steps, which checkpoints save and restore."""

from __future__ import annotations

from collections.abc import Mapping

from tensoropt.execution.lowering.draws import Draws
from tensoropt.frontend.job.job import at_shutdown, current

__all__ = ["draws_of_new_trace", "go_on_from", "step_counters"]

# The state of the process: checkpoints are made of all steps of the job.
_draws: dict[str, Draws] = {}
_waiting: dict[str, Mapping[str, int]] = {}  # restored counters of traces that have not run yet


def draws_of_new_trace(call: str) -> Draws:
    """Return the counters of a trace before its first run, by the number of traces of this call.

    Args:
        call: the call of the step in the script.
    """
    number = sum(name.rpartition(" ")[0] == call for name in _draws)
    name = f"{call} {number}"
    draws = _draws[name] = Draws(current().draws.unseeded)
    draws.go_on_from(_waiting.pop(name, {}))
    return draws


def step_counters() -> dict[str, dict[str, int]]:
    """Return the counters of operators with seeds, by trace and operator.

    Restored counters of traces that have not run yet are among them.
    """
    counters = {name: draws.seeded for name, draws in _draws.items() if draws.seeded}
    return {**{name: dict(waiting) for name, waiting in _waiting.items()}, **counters}


def go_on_from(counters: Mapping[str, Mapping[str, int]]) -> None:
    """Let traces that have not run yet begin with counters of `step_counters`."""
    _waiting.clear()
    _waiting.update((name, of) for name, of in counters.items() if name not in _draws)


def _forget() -> None:
    _draws.clear()
    _waiting.clear()


at_shutdown(_forget)
