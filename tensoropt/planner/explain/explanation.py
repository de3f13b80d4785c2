"""An explanation of a plan: the divisions of a layer that were not chosen, with their costs."""

from __future__ import annotations

from dataclasses import dataclass

from tensoropt.parallel.choices.fixed_dimension import FixedDimension

__all__ = ["Alternative", "Explanation"]


@dataclass(frozen=True, slots=True)
class Alternative:
    """A division of a layer, and the costs of a step with it.

    Attributes:
        fixed: the division in the words of `find_strategy(fixed=...)`.
        is_searched: True for the best whole plan with this division, found by a search. False for
            an estimate: the plan's costs and the difference that this division makes in the
            fastest strategy of the whole batch if only the layer, its weights and the resharding
            around them change. A search may find a better plan.
        nanoseconds: the predicted step; the estimate where there is no plan.
        memory_bytes: the predicted memory of a device; the estimate where there is no plan.
        reason: why no plan has this division; empty if one has.
    """

    fixed: tuple[FixedDimension, ...]
    is_searched: bool
    nanoseconds: int
    memory_bytes: int
    reason: str = ""

    @property
    def words(self) -> str:
        """The division in words."""
        divided = [
            f"{word.dimension} over {' and '.join(word.levels)}"
            for word in self.fixed
            if word.levels
        ]
        return ", ".join(divided) or "whole on every device"


@dataclass(frozen=True, slots=True)
class Explanation:
    """The divisions of a layer, the fastest step first.

    Attributes:
        layer: the layer, or a pattern of like layers.
        chosen: the plan's division in words; empty if it was not looked up.
        nanoseconds: the plan's predicted step.
        memory_bytes: the plan's memory of a device, as the search counts it.
        alternatives: the divisions; the plan's own may be among them.
        seconds: the time that it took.
        budget_seconds: the time that it was allowed.
    """

    layer: str
    chosen: str
    nanoseconds: int
    memory_bytes: int
    alternatives: tuple[Alternative, ...]
    seconds: float
    budget_seconds: float

    def __str__(self) -> str:
        searched = sum(each.is_searched for each in self.alternatives)
        lines = [
            f"{self.layer}: {self.chosen or 'in the plan'}",
            f"  {_costs(self.nanoseconds, self.memory_bytes)}  the plan",
        ]
        for each in self.alternatives:
            costs = _costs(each.nanoseconds, each.memory_bytes)
            if each.reason:
                lines.append(f"  {'no plan':>{len(costs)}}  searched   {each.words}: {each.reason}")
                continue
            kind = "searched " if each.is_searched else "estimated"
            lines.append(f"  {costs}  {kind}  {each.words}")
        return "\n".join(
            [
                *lines,
                f"{searched} of {len(self.alternatives)} divisions searched as whole plans in "
                f"{self.seconds:.1f} of {self.budget_seconds:g} s; others are estimated: only the "
                "layer changes",
            ]
        )


def _costs(nanoseconds: int, memory_bytes: int) -> str:
    return f"{nanoseconds / 1e6:10,.3f} ms  {memory_bytes / 2**20:10,.1f} MiB"
