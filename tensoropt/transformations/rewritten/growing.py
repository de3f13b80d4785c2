"""Terms as operators of a logical graph: `tensoropt.transformations.rewritten.views` inverted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tensoropt.graph.operator import Graph, Operator, TensorName
from tensoropt.graph.tensor import TensorSpec
from tensoropt.rewriting.terms import INPUT, TUPLE, Term
from tensoropt.transformations.rewritten.parts import constant_dim
from tensoropt.transformations.rewritten.views import Kind

__all__ = ["VIEWED", "DoesNotFit", "Grown"]

_CONVOLUTION: Kind = (
    "Conv2D",
    (
        ("strides", (1, 1, 1, 1)),
        ("dilations", (1, 1, 1, 1)),
        ("padding", "SAME"),
        ("data_format", "NHWC"),
    ),
)
_DEFAULTS: Mapping[str, Kind] = {"relu": ("Relu", ()), "conv": _CONVOLUTION}
"""The kinds of operators of terms that a match does not have."""


class DoesNotFit(Exception):
    """A term cannot be made of the tensors that a match has found."""


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
        kinds: which operators of TensorFlow those of terms are, where several may be.
        shape_of: the shape of a term whose argument falls into factors; None where unknown.
        cuts: by input and dimension where it is cut, see `cuts_of_inputs`.

    Attributes:
        operators: what is added, by name, in topological order.
    """

    def __init__(
        self,
        graph: Graph,
        inputs: Mapping[str, TensorName],
        prefix: str,
        kinds: Mapping[str, Kind],
        shape_of: Callable[[Term], tuple[int, ...] | None],
        cuts: Mapping[str, Mapping[int, int]],
    ) -> None:
        self._graph = graph
        self._prefix = prefix
        self._kinds = {**_DEFAULTS, **kinds}
        self._shape_of = shape_of
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
            if term.operator == INPUT or term.operator not in VIEWED:
                raise DoesNotFit
            arguments = [self._of(each) for each in term.arguments]
            if term.operator == "unflatten":
                wanted = self._shape_of(term)
                _fits(wanted is not None)
                self._made[term] = _unflattened(self, wanted or (), term.parameters, arguments)
            else:
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
        types: Sequence[str] = ("T",),
        **attributes: Any,
    ) -> TensorName:
        """Add an operator whose outputs have the type of what it reads first, which ``types``
        name."""
        dtype = self.spec(inputs[0]).dtype
        attributes = {**dict.fromkeys(types, dtype), **attributes}
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

    def kind(self, name: str) -> Kind:
        """Which operator of TensorFlow one of terms is.

        Raises:
            DoesNotFit: if a match has none.
        """
        _fits(name in self._kinds)
        return self._kinds[name]

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


def _build_function(grown: Grown, _none: tuple[int, ...], given: Sequence[_Made]) -> _Made:
    (x,) = given
    type_, _ = grown.kind("relu")
    return _Made(grown.add(type_, [x.tensor], [grown.shape(x)]), x.cuts)


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
    _fits(len({grown.spec(each.tensor).dtype for each in given}) == 1)
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
        if same and constant_dim(operator, 2) == dim:
            return _Made(TensorName(name, part), others)
    shapes = [(*shape[:dim], size, *shape[dim + 1 :]) for size in sizes]
    inputs = [x.tensor, grown.constant(sizes), grown.constant(dim)]
    made = grown.add("SplitV", inputs, shapes, num_split=2, Tlen="int32")
    return _Made(TensorName(made.operator, part), others)


def _build_convolution(grown: Grown, _none: tuple[int, ...], given: Sequence[_Made]) -> _Made:
    (b, h, w, i), (*window, inner, o) = _ranked(grown, given, 4, 4)
    _fits(i == inner)
    type_, attributes = _kind(grown, "conv")
    shape = (b, *_places((h, w), window, attributes), o)
    made = grown.add(type_, [each.tensor for each in given], [shape], **attributes)
    return _Made(made, {**_at(given[0], 0, 0), **_at(given[1], 3, 3)})


def _build_depthwise(grown: Grown, _none: tuple[int, ...], given: Sequence[_Made]) -> _Made:
    (b, h, w, c), (*window, channels) = _ranked(grown, given, 4, 3)
    _fits(c == channels)
    type_, attributes = _kind(grown, "depthwise_conv")
    filters = _reshaped(grown, given[1].tensor, (*window, channels, 1))
    shape = (b, *_places((h, w), window, attributes), c)
    made = grown.add(type_, [given[0].tensor, filters], [shape], **attributes)
    return _Made(made, {**_at(given[0], 0, 0), **_at(given[0], 3, 3), **_at(given[1], 2, 3)})


def _build_pool(name: str) -> Callable[..., _Made]:
    def build(grown: Grown, _none: tuple[int, ...], given: Sequence[_Made]) -> _Made:
        ((b, h, w, c),) = _ranked(grown, given, 4)
        type_, attributes = _kind(grown, name)
        shape = (b, *_places((h, w), attributes["ksize"][1:3], attributes), c)
        made = grown.add(type_, [given[0].tensor], [shape], **attributes)
        return _Made(made, {**_at(given[0], 0, 0), **_at(given[0], 3, 3)})

    return build


def _kind(grown: Grown, name: str) -> tuple[str, dict[str, Any]]:
    type_, attributes = grown.kind(name)
    return type_, dict(attributes)


def _places(
    extents: Sequence[int], window: Sequence[int], attributes: Mapping[str, Any]
) -> tuple[int, ...]:
    """How many places a window has along each dimension of an image."""
    found = []
    for number, (extent, size) in enumerate(zip(extents, window, strict=True)):
        stride = attributes["strides"][1 + number]
        wide = attributes.get("dilations", (1, 1, 1, 1))[1 + number] * (size - 1)
        most = extent if attributes["padding"] == "SAME" else extent - wide
        found.append(-(-most // stride))
    return tuple(found)


def _build_embedding(grown: Grown, _none: tuple[int, ...], given: Sequence[_Made]) -> _Made:
    (_, width), (count,) = _ranked(grown, given, 2, 1)
    table, rows = given
    axis = grown.constant(0)
    made = grown.add(
        "GatherV2",
        [table.tensor, rows.tensor, axis],
        [(count, width)],
        ("Tparams",),
        Tindices=grown.spec(rows.tensor).dtype,
        Taxis="int32",
        batch_dims=0,
    )
    return _Made(made, {**_at(rows, 0, 0), **_at(table, 1, 1)})


def _build_transpose(grown: Grown, order: tuple[int, ...], given: Sequence[_Made]) -> _Made:
    (x,) = given
    shape = grown.shape(x)
    _fits(len(order) == len(shape))
    inputs = [x.tensor, grown.constant(order)]
    made = grown.add("Transpose", inputs, [tuple(shape[dim] for dim in order)], Tperm="int32")
    return _Made(made, {order.index(dim): cut for dim, cut in x.cuts.items()})


def _build_flatten(grown: Grown, parameters: tuple[int, ...], given: Sequence[_Made]) -> _Made:
    (x,), (dim,) = given, parameters
    shape = grown.shape(x)
    _fits(dim + 1 < len(shape))
    made = _reshaped(
        grown, x.tensor, (*shape[:dim], shape[dim] * shape[dim + 1], *shape[dim + 2 :])
    )
    kept = {d: cut for d, cut in x.cuts.items() if d not in (dim, dim + 1)}
    return _Made(made, {d if d < dim else d - 1: cut for d, cut in kept.items()})


def _unflattened(
    grown: Grown, wanted: tuple[int, ...], parameters: tuple[int, ...], given: Sequence[_Made]
) -> _Made:
    (x,), (dim,) = given, parameters
    shape = grown.shape(x)
    merged = (*wanted[:dim], wanted[dim] * wanted[dim + 1], *wanted[dim + 2 :])
    _fits(merged == shape)
    kept = {d if d < dim else d + 1: cut for d, cut in x.cuts.items() if d != dim}
    return _Made(_reshaped(grown, x.tensor, wanted), kept)


def _reshaped(grown: Grown, tensor: TensorName, shape: tuple[int, ...]) -> TensorName:
    return grown.add("Reshape", [tensor, grown.constant(shape)], [shape], Tshape="int32")


_BUILDERS: Mapping[str, Callable[[Grown, tuple[int, ...], Sequence[_Made]], _Made]] = {
    "add": _build_elementwise("AddV2"),
    "avg_pool": _build_pool("avg_pool"),
    "batch_matmul": _build_batch_matmul,
    "bias_add": _build_bias,
    "concat": _build_concat,
    "conv": _build_convolution,
    "depthwise_conv": _build_depthwise,
    "embedding": _build_embedding,
    "flatten": _build_flatten,
    "matmul": _build_matmul,
    "max_pool": _build_pool("max_pool"),
    "mul": _build_elementwise("Mul"),
    "relu": _build_function,
    "scale": _build_scale,
    "softmax": _build_softmax,
    "split": _build_split,
    "transpose": _build_transpose,
}


VIEWED = frozenset({INPUT, TUPLE, "unflatten", *_BUILDERS})
"""Operators of terms that logical graphs have."""


def _at(made: _Made, dim: int, new: int) -> dict[int, int]:
    """Where a dimension is cut, as another one."""
    return {new: made.cuts[dim]} if dim in made.cuts else {}


def _ranked(grown: Grown, given: Sequence[_Made], *ranks: int) -> list[tuple[int, ...]]:
    shapes = [grown.shape(each) for each in given]
    _fits(tuple(map(len, shapes)) == ranks)
    return shapes
