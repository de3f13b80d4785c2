"""Names of the ways to run a step, in a few words."""

from __future__ import annotations

from collections.abc import Sequence

from tensoropt.transformations.staged.order_of_passes import Schedule

__all__ = ["way"]


def way(
    substitutions: Sequence[str] = (),
    microbatches: int = 1,
    stages: int = 0,
    schedule: Schedule | None = None,
    *,
    keeps_less: bool = False,
    in_proportion: bool = False,
) -> str:
    """The way to run a step, such as "2 stages, 8 microbatches" or "whole batch".

    Args:
        substitutions: names of the substitutions in the graph.
        microbatches: number of parts of the batch.
        stages: number of stages, 0 if each device has its part of all operators.
        schedule: order of the stages' passes.
        keeps_less: whether operators may keep less for the backward pass.
        in_proportion: whether pieces are in proportion to the speeds of devices.
    """
    parts = []
    if schedule == "side_by_side":
        parts.append(f"{stages} branches side by side")
    elif stages:
        parts.append(f"{stages} stages")
    if microbatches > 1:
        parts.append(f"{microbatches} microbatches")
    if keeps_less:
        parts.append("less kept")
    if in_proportion:
        parts.append("shares in proportion")
    return ", ".join([*parts, *substitutions]) or "whole batch"
