"""Operators of a logical graph as operators of terms, and the reverse.

An operator of TensorFlow is seen as one of `tensoropt.rewriting.operators` only where it does the
same: a product without transposed factors, a sum of equal shapes, a convolution of stride 1 with
padding "SAME".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tensoropt.graph.operator import Graph, Operator, TensorName
from tensoropt.graph.tensor import TensorSpec
from tensoropt.rewriting.terms import INPUT, TUPLE, Term

__all__ = ["COMMUTATIVE", "POINTWISE_TYPES", "VIEWED", "DoesNotFit", "Grown", "View", "views"]

COMMUTATIVE = frozenset({"add", "mul"})
"""Operators of terms whose two arguments may change places."""

POINTWISE_TYPES = frozenset(
    {"Elu", "Erf", "Exp", "Relu", "Relu6", "Selu", "Sigmoid", "Softplus"}
) | {
    "Softsign",
    "Square",
    "Tanh",
}
"""Types of functions of each element. Terms have ``relu`` for any: what is proven of it is proven
from properties that all of them have."""

_CONVOLUTION: Mapping[str, Any] = {
    "strides": (1, 1, 1, 1),
    "dilations": (1, 1, 1, 1),
    "padding": "SAME",
    "data_format": "NHWC",
}


class DoesNotFit(Exception):
    """A term cannot be made of the tensors that a match has found."""


@dataclass(frozen=True, slots=True)
class View:
    """An operator of a graph, as terms have it.

    Attributes:
        operator: its name there.
        parameters: whole numbers.
        arguments: the tensors that it is applied to.
        function: TensorFlow's type, of a function of each element.
    """

    operator: str
    parameters: tuple[int, ...]
    arguments: tuple[TensorName, ...]
    function: str = ""


def views(graph: Graph, tensor: TensorName) -> Iterator[View]:
    """How a tensor is made, in terms; nothing where that cannot be said."""
    operator = graph[tensor.operator]
    if operator.control_inputs or not _is_known(operator):
        return
    found = _VIEWS.get(operator.type)
    if found is not None:
        yield from found(operator, tensor.index)
    if operator.type in POINTWISE_TYPES:
        yield View("relu", (), operator.inputs, operator.type)


def _is_known(operator: Operator) -> bool:
    specs = (*operator.input_specs, *operator.outputs)
    return all(extent >= 0 for spec in specs for extent in spec.shape) and all(
        spec.dtype.startswith(("float", "bfloat")) for spec in operator.outputs
    )


def _matmul(operator: Operator, _: int) -> Iterator[View]:
    attributes = operator.attributes
    if not (attributes.get("transpose_a") or attributes.get("transpose_b")):
        yield View("matmul", (), operator.inputs)


def _batch_matmul(operator: Operator, _: int) -> Iterator[View]:
    left, right = (spec.shape for spec in operator.input_specs)
    turned = operator.attributes.get("adj_x") or operator.attributes.get("adj_y")
    if not turned and len(left) == len(right) == 3 and left[0] == right[0]:
        yield View("batch_matmul", (), operator.inputs)


def _sum(operator: Operator, _: int) -> Iterator[View]:
    left, right = (spec.shape for spec in operator.input_specs)
    if left == right:
        yield View("add", (), operator.inputs)
    elif left and right == left[-1:]:
        yield View("bias_add", (), operator.inputs)


def _bias(operator: Operator, _: int) -> Iterator[View]:
    if operator.attributes.get("data_format", "NHWC") == "NHWC":
        yield View("bias_add", (), operator.inputs)


def _product(operator: Operator, _: int) -> Iterator[View]:
    left, right = (spec.shape for spec in operator.input_specs)
    if left == right:
        yield View("mul", (), operator.inputs)
    elif right == ():
        yield View("scale", (), operator.inputs)
    elif left == ():
        yield View("scale", (), operator.inputs[::-1])


def _concat(operator: Operator, _: int) -> Iterator[View]:
    dim = _constant(operator, -1)
    if dim is not None and len(operator.inputs) == 3:
        yield View("concat", (dim % len(operator.outputs[0].shape),), operator.inputs[:2])


def _split(operator: Operator, index: int) -> Iterator[View]:
    dim = _constant(operator, 0)
    if dim is not None and len(operator.outputs) == 2:
        yield View("split", (dim % len(operator.outputs[0].shape), index), operator.inputs[1:])


def _split_sizes(operator: Operator, index: int) -> Iterator[View]:
    dim = _constant(operator, 2)
    if dim is not None and len(operator.outputs) == 2:
        yield View("split", (dim % len(operator.outputs[0].shape), index), operator.inputs[:1])


def _convolution(operator: Operator, _: int) -> Iterator[View]:
    own = {name: operator.attributes.get(name, value) for name, value in _CONVOLUTION.items()}
    if own == _CONVOLUTION and operator.input_specs[0].shape[3] == operator.input_specs[1].shape[2]:
        yield View("conv", (), operator.inputs)


def _softmax(operator: Operator, _: int) -> Iterator[View]:
    yield View("softmax", (), operator.inputs)


_VIEWS: Mapping[str, Callable[[Operator, int], Iterator[View]]] = {
    "Add": _sum,
    "AddV2": _sum,
    "BatchMatMulV2": _batch_matmul,
    "BiasAdd": _bias,
    "ConcatV2": _concat,
    "Conv2D": _convolution,
    "MatMul": _matmul,
    "Mul": _product,
    "Softmax": _softmax,
    "Split": _split,
    "SplitV": _split_sizes,
}


def _constant(operator: Operator, number: int) -> int | None:
    value = operator.input_specs[number].value
    return None if value is None else int(value.reshape(()))


@dataclass(frozen=True, slots=True)
class _Made:
    """A tensor of a term that is built, and where concatenations have joined its dimensions."""

    tensor: TensorName
    cuts: Mapping[int, int] = field(default_factory=dict)


class Grown:
    """What a graph gets for a term.

    Args:
        graph: that it is for; what is added has names that its operators have not.
        inputs: the tensors that the inputs of terms stand for.
        prefix: of the names of what is added.
        function: TensorFlow's type of ``relu``.
        cuts: by input and dimension where it is cut, see `cuts_of_inputs`.

    Attributes:
        operators: what is added, by name, in topological order.
    """

    def __init__(
        self,
        graph: Graph,
        inputs: Mapping[str, TensorName],
        prefix: str,
        function: str,
        cuts: Mapping[str, Mapping[int, int]],
    ) -> None:
        self._graph = graph
        self._prefix = prefix
        self._function = function or "Relu"
        self._made = {
            Term.input(name): _Made(tensor, cuts.get(name, {})) for name, tensor in inputs.items()
        }
        self.operators: dict[str, Operator] = {}

    def tensor(self, term: Term) -> TensorName:
        """The tensor of a term.

        Raises:
            DoesNotFit: if it cannot be made of the inputs.
        """
        return self._of(term).tensor

    def _of(self, term: Term) -> _Made:
        if term not in self._made:
            if term.operator == INPUT or term.operator not in _BUILDERS:
                raise DoesNotFit
            arguments = [self._of(each) for each in term.arguments]
            self._made[term] = _BUILDERS[term.operator](self, term.parameters, arguments)
        return self._made[term]

    def spec(self, tensor: TensorName) -> TensorSpec:
        """Of a tensor of the graph, or of what is added."""
        own = self.operators.get(tensor.operator)
        return self._graph.spec(tensor) if own is None else own.outputs[tensor.index]

    def add(
        self,
        type_: str,
        inputs: Sequence[TensorName],
        shapes: Sequence[tuple[int, ...]],
        **attributes: Any,
    ) -> TensorName:
        """Add an operator whose outputs have the type of what it reads first."""
        dtype = self.spec(inputs[0]).dtype
        attributes = {"T": dtype, **attributes}
        return self._add(
            type_,
            inputs,
            tuple(TensorSpec(shape, dtype) for shape in shapes),
            _like(self._graph, type_, attributes),
        )

    def constant(self, value: Any) -> TensorName:
        """Whole numbers, as a constant."""
        spec = TensorSpec(np.shape(value), "int32", np.array(value, np.int32))
        return self._add("Const", (), (spec,), {"dtype": "int32"})

    def _add(
        self,
        type_: str,
        inputs: Sequence[TensorName],
        outputs: tuple[TensorSpec, ...],
        attributes: Mapping[str, object],
    ) -> TensorName:
        name = f"{self._prefix}/{type_}_{len(self.operators)}"
        while name in self._graph:
            name += "_"
        self.operators[name] = Operator(
            name,
            type_,
            tuple(inputs),
            tuple(self.spec(tensor) for tensor in inputs),
            outputs,
            attributes,
            synthetic=True,
        )
        return TensorName(name, 0)

    def shape(self, made: _Made) -> tuple[int, ...]:
        return self.spec(made.tensor).shape


def _like(graph: Graph, type_: str, attributes: Mapping[str, Any]) -> Mapping[str, object]:
    """The attributes, with those that the graph's operators of this kind have besides: so what was
    measured of these holds for it."""
    for operator in graph:
        if operator.type == type_ and all(
            operator.attributes.get(name) == value for name, value in attributes.items()
        ):
            return dict(operator.attributes)
    return attributes


def _fits(condition: bool) -> None:
    if not condition:
        raise DoesNotFit


def _build_matmul(grown: Grown, _: tuple[int, ...], given: Sequence[_Made]) -> _Made:
    (m, k), (inner, n) = _ranked(grown, given, 2, 2)
    _fits(k == inner)
    made = grown.add(
        "MatMul", [each.tensor for each in given], [(m, n)], transpose_a=False, transpose_b=False
    )
    return _Made(made, {**_at(given[0], 0, 0), **_at(given[1], 1, 1)})


def _build_batch_matmul(grown: Grown, _: tuple[int, ...], given: Sequence[_Made]) -> _Made:
    (b, m, k), (batch, inner, n) = _ranked(grown, given, 3, 3)
    _fits(k == inner and b == batch)
    made = grown.add(
        "BatchMatMulV2", [each.tensor for each in given], [(b, m, n)], adj_x=False, adj_y=False
    )
    cuts = {**_at(given[0], 0, 0), **_at(given[1], 0, 0)}
    return _Made(made, {**cuts, **_at(given[0], 1, 1), **_at(given[1], 2, 2)})


def _build_elementwise(type_: str) -> Callable[..., _Made]:
    def build(grown: Grown, _: tuple[int, ...], given: Sequence[_Made]) -> _Made:
        shapes = {grown.shape(each) for each in given}
        _fits(len(shapes) == 1)
        made = grown.add(type_, [each.tensor for each in given], list(shapes))
        return _Made(made, {dim: cut for each in given for dim, cut in each.cuts.items()})

    return build


def _build_function(grown: Grown, _: tuple[int, ...], given: Sequence[_Made]) -> _Made:
    (x,) = given
    return _Made(grown.add(grown._function, [x.tensor], [grown.shape(x)]), x.cuts)


def _build_scale(grown: Grown, _: tuple[int, ...], given: Sequence[_Made]) -> _Made:
    x, scalar = given
    _fits(grown.shape(scalar) == ())
    return _Made(grown.add("Mul", [x.tensor, scalar.tensor], [grown.shape(x)]), x.cuts)


def _build_bias(grown: Grown, _: tuple[int, ...], given: Sequence[_Made]) -> _Made:
    x, bias = given
    shape = grown.shape(x)
    _fits(grown.shape(bias) == shape[-1:] and len(shape) > 1)
    cuts = {**x.cuts, **_at(bias, 0, len(shape) - 1)}
    made = grown.add("BiasAdd", [x.tensor, bias.tensor], [shape], data_format="NHWC")
    return _Made(made, cuts)


def _build_softmax(grown: Grown, _: tuple[int, ...], given: Sequence[_Made]) -> _Made:
    (x,) = given
    return _Made(grown.add("Softmax", [x.tensor], [grown.shape(x)]), x.cuts)


def _build_concat(grown: Grown, parameters: tuple[int, ...], given: Sequence[_Made]) -> _Made:
    (dim,) = parameters
    left, right = (list(grown.shape(each)) for each in given)
    _fits(len(left) == len(right) and 0 <= dim < len(left))
    whole = [*left[:dim], left[dim] + right[dim], *left[dim + 1 :]]
    _fits(whole == [*right[:dim], left[dim] + right[dim], *right[dim + 1 :]])
    axis = grown.constant(dim)
    inputs = [*(each.tensor for each in given), axis]
    made = grown.add("ConcatV2", inputs, [tuple(whole)], N=2, Tidx="int32")
    others = {d: cut for each in given for d, cut in each.cuts.items() if d != dim}
    return _Made(made, {**others, dim: left[dim]})


def _build_split(grown: Grown, parameters: tuple[int, ...], given: Sequence[_Made]) -> _Made:
    (x,), (dim, part) = given, parameters
    _fits(dim in x.cuts)
    shape, first = grown.shape(x), x.cuts[dim]
    sizes = (first, shape[dim] - first)
    others = {d: cut for d, cut in x.cuts.items() if d != dim}
    for name, operator in grown.operators.items():  # the other part of it
        same = operator.type == "SplitV" and operator.inputs[0] == x.tensor
        if same and _constant(operator, 2) == dim:
            return _Made(TensorName(name, part), others)
    shapes = [(*shape[:dim], size, *shape[dim + 1 :]) for size in sizes]
    inputs = [x.tensor, grown.constant(sizes), grown.constant(dim)]
    made = grown.add("SplitV", inputs, shapes, num_split=2, Tlen="int32")
    return _Made(TensorName(made.operator, part), others)


def _build_convolution(grown: Grown, _none: tuple[int, ...], given: Sequence[_Made]) -> _Made:
    (b, h, w, i), (*_, inner, o) = _ranked(grown, given, 4, 4)
    _fits(i == inner)
    made = grown.add("Conv2D", [each.tensor for each in given], [(b, h, w, o)], **_CONVOLUTION)
    return _Made(made, {**_at(given[0], 0, 0), **_at(given[1], 3, 3)})


_BUILDERS: Mapping[str, Callable[[Grown, tuple[int, ...], Sequence[_Made]], _Made]] = {
    "add": _build_elementwise("AddV2"),
    "batch_matmul": _build_batch_matmul,
    "bias_add": _build_bias,
    "concat": _build_concat,
    "conv": _build_convolution,
    "matmul": _build_matmul,
    "mul": _build_elementwise("Mul"),
    "relu": _build_function,
    "scale": _build_scale,
    "softmax": _build_softmax,
    "split": _build_split,
}


VIEWED = frozenset({INPUT, TUPLE, *_BUILDERS})
"""Operators of terms that logical graphs have."""


def _at(made: _Made, dim: int, new: int) -> dict[int, int]:
    """Where a dimension is cut, as another one."""
    return {new: made.cuts[dim]} if dim in made.cuts else {}


def _ranked(grown: Grown, given: Sequence[_Made], *ranks: int) -> list[tuple[int, ...]]:
    shapes = [grown.shape(each) for each in given]
    _fits(tuple(map(len, shapes)) == ranks)
    return shapes
