"""The numbers of microbatches that are searched."""

from __future__ import annotations

from tensoropt.errors import GraphError
from tensoropt.planner.request import Request
from tensoropt.transformations.microbatches.cut import cut_along_batch

__all__ = ["microbatch_counts"]

_MOST_IN_A_STAGE = 8
"""The most microbatches per stage. With more, devices would wait hardly less."""


def microbatch_counts(request: Request, wanted: int | None, stages: int) -> list[int]:
    """Return the numbers of microbatches into which a step can be cut and that are searched.

    Args:
        request: the step.
        wanted: the only number. With None, the numbers divide the batch, each is at least twice
            the one before, and the last has at most eight microbatches per stage.
        stages: the most stages.

    Raises:
        GraphError: if there is no such number; the error names the operators that prevent it.
    """
    graph, batch = request.graph, request.batch_placeholders
    if wanted is not None:
        cut_along_batch(graph, batch, wanted).check()
        return [wanted]
    cut_along_batch(graph, batch, 1)  # raises an error if placeholders have no batch
    examples = graph[min(batch)].outputs[0].shape[0]
    counts: list[int] = []
    for count in range(2, min(examples, _MOST_IN_A_STAGE * stages) + 1):
        if examples % count == 0 and (not counts or count >= 2 * counts[-1]):
            counts.append(count)
    if not counts:
        raise GraphError(
            "a batch that is computed in parts divides into at least two microbatches. Got "
            f"{examples} examples; take a batch that several microbatches divide, such as 8."
        )
    cuts = [cut_along_batch(graph, batch, count) for count in counts]
    possible = [cut.microbatches for cut in cuts if not cut.refusals]
    if not possible:
        cuts[0].check()  # raises the error
    return possible
