"""The estimated peak of memory of a step, for the batch at once or in microbatches."""

from __future__ import annotations

from math import prod

from tensoropt.cost.peak.estimated_peak import peak_memory
from tensoropt.cost.peak.held_memory import Holder
from tensoropt.graph.differentiation import differentiated_inputs, sparse_tensors
from tensoropt.graph.operator import TensorName
from tensoropt.parallel.buckets import path_to_variable
from tensoropt.parallel.keeping import differentiates_gradients
from tensoropt.parallel.layout import Layout
from tensoropt.parallel.sparse import known_shape, looks_up_rows
from tensoropt.parallel.strategy import Strategy
from tensoropt.planner.prices.reshard_steps import ReshardSteps
from tensoropt.planner.request import Request

__all__ = ["added_by_microbatches", "can_be_estimated", "estimated_bytes"]

_AT_ENDS = 2
"""The tensors of the whole batch that each end of a microbatch adds: its gradient, and zeros of the
same shape at which the gradient is taken."""


def can_be_estimated(request: Request) -> bool:
    """Whether the peak of a step can be estimated. With gradients of gradients it cannot."""
    return not differentiates_gradients(request.graph)


def estimated_bytes(request: Request, strategy: Strategy, steps: ReshardSteps) -> int:
    """Return the most bytes of a step on one device, see `tensoropt.cost.peak.estimated_peak`.

    The peak of a step in microbatches is that of one microbatch, and in addition: the sums of
    gradients over microbatches; the examples of the other microbatches, in the layouts in which
    they are fed and read; and the tensors at which microbatches end, for the whole batch.

    Args:
        request: the step.
        strategy: a strategy for the step's graph, or for that of one microbatch.
        steps: plans reshardings.
    """
    peak = peak_memory(strategy, request.reads, steps).bytes
    return peak + sum(added_by_microbatches(request, strategy).values())


def added_by_microbatches(request: Request, strategy: Strategy) -> dict[Holder, int]:
    """Return the bytes that other microbatches add to the peak of one, by what holds them."""
    if request.cut is None or request.cut.microbatches == 1:
        return {}
    count, calls = request.cut.microbatches, request.cut.calls.values()
    fed = [TensorName(name, 0) for name in request.batch_placeholders]
    ends = [end for call in calls for end in call.ends if end in request.cut.dims]
    return {
        "input": sum((count - 1) * n for tensor in fed for n in _copies(strategy, tensor).values()),
        "activations": sum(_AT_ENDS * count * max(_copies(strategy, x).values()) for x in ends),
        "gradients": _summed_bytes(strategy, count),
    }


def _summed_bytes(strategy: Strategy, microbatches: int) -> int:
    """Return the bytes of weights' summed gradients, and of the slices of tables' gradients."""
    sparse = frozenset[TensorName]().union(*sparse_tensors(strategy.graph).values())
    sums: dict[tuple[TensorName, Layout], int] = {}
    slices = 0
    for name, numbers in differentiated_inputs(strategy.graph).items():
        operator = strategy.graph[name]
        for number in numbers:
            tensor, spec = operator.inputs[number], operator.input_specs[number]
            layout, shape = strategy.input_slot(operator, number).gradient, known_shape(spec.shape)
            if tensor in sparse and looks_up_rows(operator, number):
                lookups = prod(known_shape(operator.input_specs[1].shape))
                rows = -(-lookups // strategy.mesh.pieces(layout.partial))
                split = Layout(((), *layout.dims[1:]))
                elements = split.local_elements((rows, *shape[1:]), strategy.mesh)
                slices += (microbatches - 1) * elements * spec.itemsize
            elif path_to_variable(strategy, tensor):
                elements = layout.local_elements(shape, strategy.mesh)
                sums[tensor, layout] = elements * spec.itemsize
    return sum(sums.values()) + slices


def _copies(strategy: Strategy, tensor: TensorName) -> dict[Layout, int]:
    """Return the bytes of a tensor on one device, in each layout in which it is made or read."""
    graph, mesh = strategy.graph, strategy.mesh
    layouts = [strategy.output_slot(tensor).forward]
    for reader, number in graph.consumers().get(tensor, ()):
        layouts.append(strategy.input_slot(reader, number).forward)
    shape, itemsize = known_shape(graph.spec(tensor).shape), graph.spec(tensor).itemsize
    return {layout: layout.local_elements(shape, mesh) * itemsize for layout in layouts}
