"""Gradients that arrive from several readers of a tensor are added up: what that costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from tensoropt.cost.local_operator import LocalOperator
from tensoropt.cost.operator_time import OperatorWork
from tensoropt.graph.differentiation import differentiated_inputs
from tensoropt.graph.operator import Graph, Operator, TensorName
from tensoropt.graph.tensor import TensorSpec
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.strategy import derivation_of, redundant
from tensoropt.problem.operators.local_work import operator_work

__all__ = ["gradient_sums", "sum_as_measured", "sum_operator", "value_dtype"]


def gradient_sums(
    graph: Graph, differentiated: Mapping[str, tuple[int, ...]] | None = None
) -> dict[TensorName, int]:
    """The tensors with several dense gradients, and how many.

    Args:
        graph: one training step, shapes bound.
        differentiated: per operator the inputs with a gradient; by default the graph's own.
    """
    carried = differentiated_inputs(graph) if differentiated is None else differentiated
    readers = Counter(  # names and numbers of outputs
        [
            (tensor.operator, tensor.index)
            for name, numbers in carried.items()
            for inputs in [graph[name].inputs]
            for tensor in [inputs[number] for number in numbers]
        ]
    )
    several = {TensorName(*output): count for output, count in readers.items() if count > 1}
    return {
        tensor: count
        for tensor, count in several.items()
        if -1 not in graph.spec(tensor).shape
        and value_dtype(graph, tensor).startswith(("float", "bfloat", "half", "complex"))
    }


def value_dtype(graph: Graph, tensor: TensorName) -> str:
    """The dtype of a tensor's values; of a variable's, where it is a handle or a reference."""
    operator = graph[tensor.operator]
    spec = graph.spec(tensor)
    own = operator.attributes.get("dtype", spec.dtype) if operator.is_variable else spec.dtype
    return str(own).removesuffix("_ref")


def sum_as_measured(shape: Sequence[int], dtype: str, count: int, mesh: Mesh) -> LocalOperator:
    """The sum of so many gradients on one device, as TensorFlow adds them.

    Args:
        shape: of a device's piece.
        dtype: of its elements.
        count: number of gradients.
        mesh: the devices.
    """
    operator = sum_operator(shape, dtype, count)
    derivation = derivation_of(operator)
    configuration = redundant(derivation)
    work = operator_work(operator, derivation, configuration, mesh, 0)
    assert isinstance(work, OperatorWork), "a sum computes"
    return LocalOperator(operator, derivation, configuration, (), work)


def sum_operator(shape: Sequence[int], dtype: str, count: int) -> Operator:
    """The operator that adds up so many gradients, as TensorFlow does.

    Args:
        shape: of each.
        dtype: of their elements.
        count: number of gradients.
    """
    spec = TensorSpec(tuple(shape), dtype)
    return Operator(
        name="sum_of_gradients",
        type="AddN",
        inputs=tuple(TensorName(f"gradient_{number}", 0) for number in range(count)),
        input_specs=(spec,) * count,
        outputs=(spec,),
        attributes={"N": count, "T": dtype},
        synthetic=True,
    )
