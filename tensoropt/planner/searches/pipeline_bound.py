"""A lower bound of the step of a pipeline, which takes no search."""

from __future__ import annotations

from tensoropt.graph.differentiation import differentiated_inputs
from tensoropt.graph.operator import Graph
from tensoropt.parallel.assignments import assignment_of
from tensoropt.parallel.choices.kinds import kinds_of
from tensoropt.parallel.strategy import redundant
from tensoropt.pipeline.links import Links
from tensoropt.planner.request import Request
from tensoropt.problem.operators.joined_products import number_sharing, sharing_products
from tensoropt.problem.operators.local_work import operator_work
from tensoropt.problem.operators.operator_costs import OperatorCosts

__all__ = ["PipelineBound"]


class PipelineBound:
    """Lower bounds of a request's step on its devices, by numbers of stages and microbatches.

    Microbatches and devices share the work of operators equally, but not the time to start their
    kernels. Devices that differ share it in proportion to their speeds, and start kernels as the
    fastest does. All stages are equally long, and send each other empty messages. Updates, sums of
    gradients and resharding take no time.
    """

    def __init__(self, request: Request) -> None:
        cluster = request.cluster_at(request.devices)
        speeds = cluster.speeds(request.devices)
        speed = max(speeds)
        cost = request.cost_model(request.devices, speed=speed if cluster.kinds else None)
        links = Links.of(cluster)
        self._fastest_devices, self._start = sum(speeds) / speed, cost.step_nanoseconds()
        self._message = links.send_nanoseconds(1, 1, across=False, tensors=1)
        mesh = cost.mesh
        graph = request.graph
        differentiated = differentiated_inputs(graph)
        derivations = kinds_of(graph).derivations
        sharing = number_sharing(sharing_products(graph, differentiated))
        costs = OperatorCosts(mesh, cost)
        overhead = cluster.device.operator_overhead_seconds * 1e9 / speed
        self._overhead = self._work = 0.0
        for name in _forward(graph):
            operator, derivation = graph[name], derivations[name]
            backward = len(differentiated.get(name, ()))
            unsplit = redundant(derivation)
            work = operator_work(operator, derivation, unsplit, mesh, backward)
            if work is None or operator.is_constant or operator.is_placeholder:
                continue
            time = cost.operator_nanoseconds(work).total
            if name in sharing:
                assigned, count = assignment_of(unsplit, mesh), sharing[name]
                found = costs.of(operator, derivation, assigned, backward, sharing=count)
                time = int(found.time[0])
            starting = min(time, (1 + backward) * overhead)
            self._overhead += starting
            self._work += time - starting

    @property
    def least_nanoseconds(self) -> float:
        """The bound of any step of the graph's operators, with stages, branches or neither."""
        return self._start + self._work / self._fastest_devices

    def nanoseconds(self, stages: int, microbatches: int) -> float:
        """Return the bound of a step with these stages and microbatches, on all devices."""
        passes = self._overhead + self._work * stages / self._fastest_devices / microbatches
        passes += 2 * (stages - 1) * self._message
        return self._start + passes * (1 + (microbatches - 1) / stages)


def _forward(graph: Graph) -> set[str]:
    """Return the operators of the forward pass: those on which a differentiated tensor depends."""
    waiting = [y.operator for op in graph if op.gradient is not None for y in op.gradient.ys]
    reached: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            waiting += [tensor.operator for tensor in graph[name].inputs]
    return {name for name in reached if graph[name].gradient is None}
