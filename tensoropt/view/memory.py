"""What holds the memory of a plan's device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tensoropt.cost.peak.held_memory import HOLDERS
from tensoropt.plan.plan import Plan
from tensoropt.view.data import Alive, MemoryAt, MemoryView, Share
from tensoropt.view.layers import Row

__all__ = ["memory_of"]


def memory_of(plan: Plan, rows: Sequence[Row]) -> MemoryView:
    """The holders of a plan's memory. Without details only variables are told apart."""
    row_of = {operator.name: row.name for row in rows for operator in row.operators}
    held = plan.details.memory if plan.details else None
    if held is None:
        weights = _bytes_of(plan, "weights")
        slots = _bytes_of(plan, "slots")
        rest = plan.memory_bytes - weights - slots
        shares = [Share("weights", weights), Share("slots", slots), Share("activations", rest)]
        return MemoryView(_largest(shares), plan.memory_bytes, "", (), HOLDERS, (), 0)
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


def _bytes_of(plan: Plan, use: str) -> int:
    return sum(each.memory_bytes for each in plan.operators if each.variable == use)


def _largest(shares: Sequence[Share]) -> tuple[Share, ...]:
    return tuple(sorted((s for s in shares if s.bytes), key=lambda share: -share.bytes))


def _row(event: str, row_of: Mapping[str, str]) -> str:
    """The row of an event, which is named after an operator: "gradient of x", "x/reshard"."""
    name = event.removeprefix("gradient of ").removeprefix("gradients of ").partition(":")[0]
    name = name.removesuffix(" again")
    return row_of.get(name) or row_of.get(name.rpartition("/")[0], "")
