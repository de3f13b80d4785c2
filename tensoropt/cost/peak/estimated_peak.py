"""The peak of memory on one device: a training step, followed from operator to operator.

Operators run in the graph's order, as in a rank's program. Where it has the first gradient of a
call of ``tf.gradients``, all of that call follow in reverse, each as soon as all that it adds up is
there; updates run as soon as their gradients are there. A tensor is there from the operator that
makes it to the last one that reads it; a kernel whose input nobody else needs writes over it, where
TensorFlow's does. Variables and what is fed stay throughout.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tensoropt.cost.peak.estimated_backward import BackwardEvents
from tensoropt.cost.peak.estimated_forward import ForwardEvents, PlanSteps
from tensoropt.cost.peak.timeline import Buffer
from tensoropt.graph.backward_reads import BackwardReads
from tensoropt.graph.operator import Graph, Operator, TensorName
from tensoropt.graph.per_graph import per_graph
from tensoropt.parallel.buckets import BUCKET_SIZES, BucketSizes
from tensoropt.parallel.strategy import Strategy

__all__ = ["Peak", "PlanSteps", "peak_memory"]


@dataclass(frozen=True, slots=True)
class Peak:
    """The most memory that one device has in use at once during a step.

    Attributes:
        bytes: all of it.
        resident_bytes: of it, variables, constants and what is fed.
        at: the operator at which it is reached; "gradient of ..." in the backward pass.
    """

    bytes: int
    resident_bytes: int
    at: str


def peak_memory(
    strategy: Strategy,
    reads: BackwardReads,
    plan_steps: PlanSteps | None = None,
    buckets: BucketSizes = BUCKET_SIZES,
) -> Peak:
    """The peak of a step under a strategy.

    Args:
        strategy: of the step's graph.
        reads: what the backward pass reads of the forward pass.
        plan_steps: plans a resharding, for the buffers of its steps; without it only the tensors
            before and after count.
        buckets: when gradients of weights are sent, all of which are there until then.
    """
    forward = ForwardEvents(strategy, plan_steps)
    updates = _Updates(strategy.graph, forward)
    called: set[int] = set()
    for operator in strategy.graph:
        tag = operator.gradient
        if tag is None and operator.name not in forward.done:
            forward.run(operator)
        if tag is not None and tag.call not in called:
            called.add(tag.call)
            BackwardEvents(
                strategy, reads, forward, tag.call, buckets.full_bytes, updates.gradient_complete
            ).run()
    most, where = forward.timeline.peak()
    return Peak(forward.resident + most, forward.resident, where)


class _Updates:
    """What waits for which gradients."""

    def __init__(self, graph: Graph, forward: ForwardEvents) -> None:
        self._graph = graph
        self._forward = forward
        after = _after_gradients(graph).items()
        self._after = {n: before for n, before in after if graph[n].gradient is None}
        self._tags: dict[tuple[int, TensorName], list[str]] = {}
        for operator in graph:
            if operator.gradient is not None:
                tag = operator.gradient
                self._tags.setdefault((tag.call, tag.x), []).append(operator.name)

    def gradient_complete(self, call: int, x: TensorName, buffer: Buffer) -> None:
        """The gradient by x is complete: run what waited for it alone."""
        tags = self._tags.pop((call, x), ())
        for name in tags:
            self._forward.done.add(name)
            self._forward.timeline.shares[(name, 0)] = buffer
        if not tags:
            return
        done = self._forward.done
        for name, before in self._after.items():
            if name not in done and done.issuperset(before):
                self._run_with_ancestors(self._graph[name])

    def _run_with_ancestors(self, operator: Operator) -> None:
        """Run an operator, before it what it needs that waits for no gradient, as a rate."""
        done = self._forward.done
        waiting = [operator]
        while waiting:
            names = waiting[-1].predecessors
            missing = [self._graph[n] for n in names if n in self._graph and n not in done]
            if missing:
                waiting += missing
                continue
            last = waiting.pop()
            if last.name not in done:
                self._forward.run(last)


@per_graph
def _after_gradients(graph: Graph) -> Mapping[str, list[str]]:
    """The operators that need some gradient, and the gradients, in order: by name, which of these
    each waits for."""
    found: dict[str, list[str]] = {}
    for operator in graph:
        before = [name for name in operator.predecessors if name in found]
        if operator.gradient is not None or before:
            found[operator.name] = before
    return found
