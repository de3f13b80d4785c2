"""Which numbers of microbatches are looked at."""

from __future__ import annotations

from tensoropt.errors import GraphError
from tensoropt.planner.request import Request
from tensoropt.transformations.microbatches.cut import cut_along_batch

__all__ = ["microbatch_counts"]

_MOST_IN_A_STAGE = 8
"""Microbatches per stage, above which no more are looked at: devices wait little then."""


def microbatch_counts(request: Request, wanted: int | None, stages: int) -> list[int]:
    """Numbers of microbatches for which the step can be computed microbatch by microbatch.

    Args:
        request: the step.
        wanted: the only one; None for those that divide the batch, each at least twice the one
            before, up to eight for each stage.
        stages: at most so many.

    Raises:
        GraphError: if there is none; names what stands in the way.
    """
    graph, batch = request.graph, request.batch_placeholders
    if wanted is not None:
        cut_along_batch(graph, batch, wanted).check()
        return [wanted]
    cut_along_batch(graph, batch, 1)  # checks what is fed
    examples = graph[min(batch)].outputs[0].shape[0]
    found: list[int] = []
    for count in range(2, min(examples, _MOST_IN_A_STAGE * stages) + 1):
        if examples % count == 0 and (not found or count >= 2 * found[-1]):
            found.append(count)
    if not found:
        raise GraphError(
            "a batch that is computed in parts divides into at least two microbatches. Got "
            f"{examples} examples; take a batch that several microbatches divide, such as 8."
        )
    cuts = [cut_along_batch(graph, batch, count) for count in found]
    able = [cut.microbatches for cut in cuts if not cut.refusals]
    if not able:
        cuts[0].check()
    return able
