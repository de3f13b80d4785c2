"""Sums of gradients: a tensor with several readers gets a gradient from each, and these are
added."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from tensoropt.cost.operator_time import LocalOperator, OperatorWork
from tensoropt.graph.operator import Graph, Operator, TensorName
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.strategy import derivation_of, redundant
from tensoropt.problem.operators.local_work import operator_work
from tensoropt.tensor_spec import TensorSpec

__all__ = ["reader_gradient_sums", "sum_as_measured", "sum_operator"]
_ADDED = ("float", "bfloat", "half", "complex")
"""TensorFlow adds gradients of dtypes with these prefixes."""


def reader_gradient_sums(
    graph: Graph, differentiated: Mapping[str, tuple[int, ...]]
) -> dict[TensorName, int]:
    """Return the tensors with several dense gradients, and the number of gradients of each.

    Args:
        graph: the graph of one training step, with known shapes.
        differentiated: for each operator the inputs whose gradient is computed.
    """
    readers = Counter(
        graph[name].inputs[number] for name, numbers in differentiated.items() for number in numbers
    )
    counts = {}
    for tensor, count in readers.items():
        if count == 1:
            continue
        spec = graph[tensor.operator].value_spec(tensor.index)
        if -1 not in spec.shape and spec.dtype.startswith(_ADDED):
            counts[tensor] = count
    return counts


def sum_as_measured(shape: Sequence[int], dtype: str, count: int, mesh: Mesh) -> LocalOperator:
    """Return the sum of gradients on one device, in the form in which operators are measured.

    Args:
        shape: shape of a device's piece.
        dtype: dtype of its elements.
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
    """Return the operator with which TensorFlow adds gradients.

    Args:
        shape: shape of each gradient.
        dtype: dtype of their elements.
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
