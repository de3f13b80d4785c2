"""What a step of a pipeline takes at least, without a search."""

from __future__ import annotations

from tensoropt.graph.differentiation import differentiated_inputs
from tensoropt.graph.operator import Graph
from tensoropt.parallel.choices.kinds import Kinds
from tensoropt.parallel.strategy import redundant
from tensoropt.pipeline.links import Links
from tensoropt.planner.request import Request
from tensoropt.problem.operators.local_work import operator_work

__all__ = ["PipelineBound"]


class PipelineBound:
    """What steps of a request take at least on its devices, by stages and microbatches.

    Of the time of operators on one device the work is divided by microbatches and devices, the
    time to start a kernel by neither. Stages are as long as each other, and send each other empty
    messages. Updates, sums of gradients and resharding are left out.
    """

    def __init__(self, request: Request) -> None:
        cluster = request.cluster_at(request.devices)
        cost = request.cost_model(request.devices)
        links = Links.of(cluster)
        self._devices, self._start = request.devices, cost.step_nanoseconds()
        self._message = links.send_nanoseconds(1, 1, across=False, tensors=1)
        mesh = cost.mesh
        graph = request.graph
        flowing = differentiated_inputs(graph)
        derivations = Kinds(graph).derivations
        overhead = cluster.device.operator_overhead_seconds * 1e9
        self._overhead = self._work = 0.0
        for name in _forward(graph):
            operator, derivation = graph[name], derivations[name]
            backward = len(flowing.get(name, ()))
            work = operator_work(operator, derivation, redundant(derivation), mesh, backward)
            if work is None or operator.is_constant or operator.is_placeholder:
                continue
            time = cost.operator_nanoseconds(work).total
            starting = min(time, (1 + backward) * overhead)
            self._overhead += starting
            self._work += time - starting

    def nanoseconds(self, stages: int, microbatches: int) -> float:
        """Of a step of so many stages on all devices, and so many microbatches."""
        passes = self._overhead + self._work * stages / self._devices / microbatches
        passes += 2 * (stages - 1) * self._message
        return self._start + passes * (1 + (microbatches - 1) / stages)


def _forward(graph: Graph) -> set[str]:
    """What gradients are of."""
    waiting = [y.operator for op in graph if op.gradient is not None for y in op.gradient.ys]
    found: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += [tensor.operator for tensor in graph[name].inputs]
    return {name for name in found if graph[name].gradient is None}
