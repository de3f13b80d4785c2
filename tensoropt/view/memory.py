"""What holds the memory of a plan's device."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from tensoropt.cost.peak.held_memory import HOLDERS
from tensoropt.graph.operator import GRADIENT
from tensoropt.plan.plan import Plan
from tensoropt.view.data.memory import Alive, MemoryAt, MemoryView, Share
from tensoropt.view.layers import Row, row_names

__all__ = ["memory_of"]


def memory_of(plan: Plan, rows: Sequence[Row]) -> MemoryView:
    """The holders of a plan's memory. Without details only variables are told apart."""
    held = plan.details.memory if plan.details else None
    if held is None:
        return _by_operators(plan)
    row_of = row_names(rows)
    return MemoryView(
        peak=_largest([Share(*pair) for pair in zip(HOLDERS, held.bytes, strict=True)]),
        peak_bytes=sum(held.bytes),
        at=held.at,
        alive=tuple(
            Alive(name, row_of.get(name, ""), holder, size) for name, holder, size in held.tensors
        ),
        holders=HOLDERS,
        step=tuple(MemoryAt(n, at, _row(at, row_of), size) for n, at, size in held.step),
        events=held.events,
    )


def _by_operators(plan: Plan) -> MemoryView:
    """The memory as the search counts it; of a pipeline the stage with the most.

    What variables and their gradients do not take counts as activations.
    """
    members = {operator.name for operator in plan.operators}
    total = plan.memory_bytes
    if plan.stages:
        largest = max(plan.stages, key=lambda stage: stage.memory_bytes)
        members, total = set(largest.operators), largest.memory_bytes
    of_use = Counter[str]()
    for operator in plan.operators:
        if operator.name in members:
            use = "gradients" if operator.type == GRADIENT else operator.variable
            of_use[use] += operator.memory_bytes
    known = [
        Share("weights", of_use["weights"]),
        Share("slots", of_use["slots"]),
        Share("gradients", of_use["gradients"]),
    ]
    rest = max(0, total - sum(share.bytes for share in known))
    shares = _largest([*known, Share("activations", rest)])
    return MemoryView(shares, sum(share.bytes for share in shares), "", (), HOLDERS, (), 0)


def _largest(shares: Sequence[Share]) -> tuple[Share, ...]:
    return tuple(sorted((s for s in shares if s.bytes), key=lambda share: -share.bytes))


def _row(event: str, row_of: Mapping[str, str]) -> str:
    """The row of an event, which is named after an operator: "gradient of x", "x/reshard"."""
    name = event.removeprefix("gradient of ").removeprefix("gradients of ").partition(":")[0]
    name = name.removesuffix(" again")
    return row_of.get(name) or row_of.get(name.rpartition("/")[0], "")
