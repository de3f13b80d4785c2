"""The peak memory of one device, estimated operator by operator through a training step.

Operators run in the graph's order, as in a rank's program. At the first gradient of a call of
``tf.gradients``, the whole call runs in reverse order: each gradient as soon as everything that it
adds up is complete. Updates of variables run as soon as their gradients are complete.

A tensor is in memory from its producer to its last reader. A kernel may write over an input that no
other operator needs, as TensorFlow's kernel does. Variables and placeholders stay in memory.
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

__all__ = ["Peak", "PlanSteps", "followed_step", "peak_memory"]


@dataclass(frozen=True, slots=True)
class Peak:
    """The largest memory that one device has in use during a step.

    Attributes:
        bytes: the peak.
        resident_bytes: the part of variables, constants and placeholders.
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
    """Return the peak of a step under a strategy.

    Args:
        strategy: strategy of the step's graph.
        reads: the tensors of the forward pass that the backward pass reads.
        plan_steps: plans a resharding, to count the buffers of its steps. Without it only the
            tensors before and after count.
        buckets: size of the buckets of gradients. All gradients of a bucket are in memory until it
            is sent.
    """
    forward = followed_step(strategy, reads, plan_steps, buckets)
    resident = sum(forward.resident.values())
    peak, where = forward.timeline.peak()
    return Peak(resident + peak, resident, where)


def followed_step(
    strategy: Strategy,
    reads: BackwardReads,
    plan_steps: PlanSteps | None = None,
    buckets: BucketSizes = BUCKET_SIZES,
) -> ForwardEvents:
    """Return the events of a step, with what stays in memory. Arguments as of `peak_memory`."""
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
    return forward


class _Updates:
    """The operators that run when gradients become complete."""

    def __init__(self, graph: Graph, forward: ForwardEvents) -> None:
        self._graph = graph
        self._forward = forward
        gradients_before = _gradients_before(graph).items()
        self._waiting_for = {
            name: before for name, before in gradients_before if graph[name].gradient is None
        }
        self._tags: dict[tuple[int, TensorName], list[str]] = {}
        for operator in graph:
            if operator.gradient is not None:
                tag = operator.gradient
                self._tags.setdefault((tag.call, tag.x), []).append(operator.name)

    def gradient_complete(self, call: int, x: TensorName, buffer: Buffer) -> None:
        """Run the operators that wait for no other gradient than the one by x."""
        tags = self._tags.pop((call, x), ())
        for name in tags:
            self._forward.done.add(name)
            self._forward.timeline.shares[(name, 0)] = buffer
        if not tags:
            return
        done = self._forward.done
        for name, before in self._waiting_for.items():
            if name not in done and done.issuperset(before):
                self._run_with_ancestors(self._graph[name])

    def _run_with_ancestors(self, operator: Operator) -> None:
        """Run an operator, after its predecessors that have not run, such as a learning rate."""
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
def _gradients_before(graph: Graph) -> Mapping[str, list[str]]:
    """Return the operators that need a gradient, and the gradients, in order.

    For each, the result has the names of its predecessors among them.
    """
    waiting: dict[str, list[str]] = {}
    for operator in graph:
        before = [name for name in operator.predecessors if name in waiting]
        if operator.gradient is not None or before:
            waiting[operator.name] = before
    return waiting
