"""Construction of the operators that compute a term: the inverse of `rewritten.views`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tensoropt.graph.operator import Graph, Operator, TensorName
from tensoropt.rewriting.terms import INPUT, TUPLE, Term
from tensoropt.tensor_spec import TensorSpec
from tensoropt.transformations.rewritten.parts import constant_dim, whole_numbers
from tensoropt.transformations.rewritten.views import Kind

__all__ = ["VIEWED", "DoesNotFit", "TermBuilder"]

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
"""Default kinds of operators, for terms whose operator is not in the match."""


class DoesNotFit(Exception):
    """A term cannot be built from the tensors of a match."""


@dataclass(frozen=True, slots=True)
class _Built:
    """The tensor of a built term, and where concatenations have joined its dimensions."""

    tensor: TensorName
    cuts: Mapping[int, int] = field(default_factory=dict)


class TermBuilder:
    """Builds operators for terms.

    Args:
        graph: the graph; names of new operators differ from its names.
        inputs: the tensors of the inputs of terms, by name.
        prefix: prefix of the names of new operators.
        kinds: TensorFlow's operators for operators of terms that have several.
        shape_of: returns the shape of a term whose argument is split into factors; None if unknown.
        cuts: the cut of each input's dimensions, see `cuts_of_inputs`.

    Attributes:
        operators: the new operators by name, in topological order.
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
        self._tensors = {
            Term.input(name): _Built(tensor, cuts.get(name, {})) for name, tensor in inputs.items()
        }
        self.operators: dict[str, Operator] = {}

    def tensor(self, term: Term) -> TensorName:
        """The tensor of a term, which is built at the first call.

        Raises:
            DoesNotFit: if it cannot be built from the inputs.
        """
        return self._built(term).tensor

    def _built(self, term: Term) -> _Built:
        if term not in self._tensors:
            if term.operator == INPUT or term.operator not in VIEWED:
                raise DoesNotFit
            arguments = [self._built(argument) for argument in term.arguments]
            if term.operator == "unflatten":
                wanted = self._shape_of(term)
                _fits(wanted is not None)
                self._tensors[term] = _unflattened(self, wanted or (), term.parameters, arguments)
            else:
                self._tensors[term] = _BUILDERS[term.operator](self, term.parameters, arguments)
        return self._tensors[term]

    def spec(self, tensor: TensorName) -> TensorSpec:
        """The specification of a tensor of the graph, or of a new operator."""
        new = self.operators.get(tensor.operator)
        return self._graph.spec(tensor) if new is None else new.outputs[tensor.index]

    def add(
        self,
        type_: str,
        inputs: Sequence[TensorName],
        shapes: Sequence[tuple[int, ...]],
        types: Sequence[str] = ("T",),
        **attributes: Any,
    ) -> TensorName:
        """Add an operator whose outputs have the type of its first input.

        Args:
            type_: type of the operator.
            inputs: the input tensors.
            shapes: shapes of the outputs.
            types: names of the attributes with that type.
            attributes: further attributes.
        """
        dtype = self.spec(inputs[0]).dtype
        attributes = {**dict.fromkeys(types, dtype), **attributes}
        return self._add(
            type_,
            inputs,
            tuple(TensorSpec(shape, dtype) for shape in shapes),
            _like(self._graph, type_, attributes),
        )

    def constant(self, value: int | Sequence[int]) -> TensorName:
        """Add a constant of whole numbers."""
        spec = whole_numbers(value)
        return self._add("Const", (), (spec,), {"dtype": spec.dtype})

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
        """TensorFlow's operator for an operator of terms.

        Raises:
            DoesNotFit: if the match has no such operator.
        """
        _fits(name in self._kinds)
        return self._kinds[name]

    def shape(self, built: _Built) -> tuple[int, ...]:
        return self.spec(built.tensor).shape


def _like(graph: Graph, type_: str, attributes: Mapping[str, Any]) -> Mapping[str, object]:
    """All attributes of an operator in the graph with this type and these attributes, if any.

    With the same attributes, the measured times of that operator hold for the new one, too.
    """
    for operator in graph:
        if operator.type == type_ and all(
            operator.attributes.get(name) == value for name, value in attributes.items()
        ):
            return dict(operator.attributes)
    return attributes


def _fits(condition: bool) -> None:
    if not condition:
        raise DoesNotFit


def _build_matmul(builder: TermBuilder, _: tuple[int, ...], args: Sequence[_Built]) -> _Built:
    (m, k), (inner, n) = _ranked(builder, args, 2, 2)
    _fits(k == inner)
    result = builder.add(
        "MatMul", [arg.tensor for arg in args], [(m, n)], transpose_a=False, transpose_b=False
    )
    return _Built(result, {**_at(args[0], 0, 0), **_at(args[1], 1, 1)})


def _build_batch_matmul(builder: TermBuilder, _: tuple[int, ...], args: Sequence[_Built]) -> _Built:
    (b, m, k), (batch, inner, n) = _ranked(builder, args, 3, 3)
    _fits(k == inner and b == batch)
    result = builder.add(
        "BatchMatMulV2", [arg.tensor for arg in args], [(b, m, n)], adj_x=False, adj_y=False
    )
    cuts = {**_at(args[0], 0, 0), **_at(args[1], 0, 0)}
    return _Built(result, {**cuts, **_at(args[0], 1, 1), **_at(args[1], 2, 2)})


def _build_elementwise(type_: str) -> Callable[..., _Built]:
    def build(builder: TermBuilder, _: tuple[int, ...], args: Sequence[_Built]) -> _Built:
        shapes = {builder.shape(arg) for arg in args}
        _fits(len(shapes) == 1)
        result = builder.add(type_, [arg.tensor for arg in args], list(shapes))
        return _Built(result, {dim: cut for arg in args for dim, cut in arg.cuts.items()})

    return build


def _build_function(builder: TermBuilder, _none: tuple[int, ...], args: Sequence[_Built]) -> _Built:
    (x,) = args
    type_, _ = builder.kind("relu")
    return _Built(builder.add(type_, [x.tensor], [builder.shape(x)]), x.cuts)


def _build_scale(builder: TermBuilder, _: tuple[int, ...], args: Sequence[_Built]) -> _Built:
    x, scalar = args
    _fits(builder.shape(scalar) == ())
    return _Built(builder.add("Mul", [x.tensor, scalar.tensor], [builder.shape(x)]), x.cuts)


def _build_bias(builder: TermBuilder, _: tuple[int, ...], args: Sequence[_Built]) -> _Built:
    x, bias = args
    shape = builder.shape(x)
    _fits(builder.shape(bias) == shape[-1:] and len(shape) > 1)
    cuts = {**x.cuts, **_at(bias, 0, len(shape) - 1)}
    result = builder.add("BiasAdd", [x.tensor, bias.tensor], [shape], data_format="NHWC")
    return _Built(result, cuts)


def _build_softmax(builder: TermBuilder, _: tuple[int, ...], args: Sequence[_Built]) -> _Built:
    (x,) = args
    return _Built(builder.add("Softmax", [x.tensor], [builder.shape(x)]), x.cuts)


def _build_concat(
    builder: TermBuilder, parameters: tuple[int, ...], args: Sequence[_Built]
) -> _Built:
    (dim,) = parameters
    left, right = (list(builder.shape(arg)) for arg in args)
    _fits(len(left) == len(right) and 0 <= dim < len(left))
    whole = [*left[:dim], left[dim] + right[dim], *left[dim + 1 :]]
    _fits(whole == [*right[:dim], left[dim] + right[dim], *right[dim + 1 :]])
    axis = builder.constant(dim)
    inputs = [*(arg.tensor for arg in args), axis]
    _fits(len({builder.spec(arg.tensor).dtype for arg in args}) == 1)
    result = builder.add("ConcatV2", inputs, [tuple(whole)], N=2, Tidx="int32")
    others = {d: cut for arg in args for d, cut in arg.cuts.items() if d != dim}
    return _Built(result, {**others, dim: left[dim]})


def _build_split(
    builder: TermBuilder, parameters: tuple[int, ...], args: Sequence[_Built]
) -> _Built:
    (x,), (dim, part) = args, parameters
    _fits(dim in x.cuts)
    shape, first = builder.shape(x), x.cuts[dim]
    sizes = (first, shape[dim] - first)
    others = {d: cut for d, cut in x.cuts.items() if d != dim}
    for name, operator in builder.operators.items():  # a split that was built for the other part
        same = operator.type == "SplitV" and operator.inputs[0] == x.tensor
        if same and constant_dim(operator, 2) == dim:
            return _Built(TensorName(name, part), others)
    shapes = [(*shape[:dim], size, *shape[dim + 1 :]) for size in sizes]
    given = builder.constant(sizes)
    inputs, wide = [x.tensor, given, builder.constant(dim)], builder.spec(given).dtype
    result = builder.add("SplitV", inputs, shapes, num_split=2, Tlen=wide)
    return _Built(TensorName(result.operator, part), others)


def _build_convolution(
    builder: TermBuilder, _none: tuple[int, ...], args: Sequence[_Built]
) -> _Built:
    (b, h, w, i), (*window, inner, o) = _ranked(builder, args, 4, 4)
    _fits(i == inner)
    type_, attributes = _kind(builder, "conv")
    shape = (b, *_places((h, w), window, attributes), o)
    result = builder.add(type_, [arg.tensor for arg in args], [shape], **attributes)
    return _Built(result, {**_at(args[0], 0, 0), **_at(args[1], 3, 3)})


def _build_depthwise(
    builder: TermBuilder, _none: tuple[int, ...], args: Sequence[_Built]
) -> _Built:
    (b, h, w, c), (*window, channels) = _ranked(builder, args, 4, 3)
    _fits(c == channels)
    type_, attributes = _kind(builder, "depthwise_conv")
    filters = _reshaped(builder, args[1].tensor, (*window, channels, 1))
    shape = (b, *_places((h, w), window, attributes), c)
    result = builder.add(type_, [args[0].tensor, filters], [shape], **attributes)
    return _Built(result, {**_at(args[0], 0, 0), **_at(args[0], 3, 3), **_at(args[1], 2, 3)})


def _build_pool(name: str) -> Callable[..., _Built]:
    def build(builder: TermBuilder, _none: tuple[int, ...], args: Sequence[_Built]) -> _Built:
        ((b, h, w, c),) = _ranked(builder, args, 4)
        type_, attributes = _kind(builder, name)
        shape = (b, *_places((h, w), attributes["ksize"][1:3], attributes), c)
        result = builder.add(type_, [args[0].tensor], [shape], **attributes)
        return _Built(result, {**_at(args[0], 0, 0), **_at(args[0], 3, 3)})

    return build


def _kind(builder: TermBuilder, name: str) -> tuple[str, dict[str, Any]]:
    type_, attributes = builder.kind(name)
    return type_, dict(attributes)


def _places(
    extents: Sequence[int], window: Sequence[int], attributes: Mapping[str, Any]
) -> tuple[int, ...]:
    """The number of positions of a window along each dimension of an image."""
    counts = []
    for number, (extent, size) in enumerate(zip(extents, window, strict=True)):
        stride = attributes["strides"][1 + number]
        wide = attributes.get("dilations", (1, 1, 1, 1))[1 + number] * (size - 1)
        most = extent if attributes["padding"] == "SAME" else extent - wide
        counts.append(-(-most // stride))
    return tuple(counts)


def _build_embedding(
    builder: TermBuilder, _none: tuple[int, ...], args: Sequence[_Built]
) -> _Built:
    (_, width), (count,) = _ranked(builder, args, 2, 1)
    table, rows = args
    axis = builder.constant(0)
    result = builder.add(
        "GatherV2",
        [table.tensor, rows.tensor, axis],
        [(count, width)],
        ("Tparams",),
        Tindices=builder.spec(rows.tensor).dtype,
        Taxis="int32",
        batch_dims=0,
    )
    return _Built(result, {**_at(rows, 0, 0), **_at(table, 1, 1)})


def _build_transpose(
    builder: TermBuilder, order: tuple[int, ...], args: Sequence[_Built]
) -> _Built:
    (x,) = args
    shape = builder.shape(x)
    _fits(len(order) == len(shape))
    inputs = [x.tensor, builder.constant(order)]
    result = builder.add("Transpose", inputs, [tuple(shape[dim] for dim in order)], Tperm="int32")
    return _Built(result, {order.index(dim): cut for dim, cut in x.cuts.items()})


def _build_flatten(
    builder: TermBuilder, parameters: tuple[int, ...], args: Sequence[_Built]
) -> _Built:
    (x,), (dim,) = args, parameters
    shape = builder.shape(x)
    _fits(dim + 1 < len(shape))
    result = _reshaped(
        builder, x.tensor, (*shape[:dim], shape[dim] * shape[dim + 1], *shape[dim + 2 :])
    )
    kept = {d: cut for d, cut in x.cuts.items() if d not in (dim, dim + 1)}
    return _Built(result, {d if d < dim else d - 1: cut for d, cut in kept.items()})


def _unflattened(
    builder: TermBuilder,
    wanted: tuple[int, ...],
    parameters: tuple[int, ...],
    args: Sequence[_Built],
) -> _Built:
    (x,), (dim,) = args, parameters
    shape = builder.shape(x)
    merged = (*wanted[:dim], wanted[dim] * wanted[dim + 1], *wanted[dim + 2 :])
    _fits(merged == shape)
    kept = {d if d < dim else d + 1: cut for d, cut in x.cuts.items() if d != dim}
    return _Built(_reshaped(builder, x.tensor, wanted), kept)


def _reshaped(builder: TermBuilder, tensor: TensorName, shape: tuple[int, ...]) -> TensorName:
    sizes = builder.constant(shape)
    return builder.add("Reshape", [tensor, sizes], [shape], Tshape=builder.spec(sizes).dtype)


_BUILDERS: Mapping[str, Callable[[TermBuilder, tuple[int, ...], Sequence[_Built]], _Built]] = {
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
"""Operators of terms that can be built in logical graphs."""


def _at(built: _Built, dim: int, new: int) -> dict[int, int]:
    """The cut of a dimension, as the cut of another dimension."""
    return {new: built.cuts[dim]} if dim in built.cuts else {}


def _ranked(builder: TermBuilder, args: Sequence[_Built], *ranks: int) -> list[tuple[int, ...]]:
    shapes = [builder.shape(arg) for arg in args]
    _fits(tuple(map(len, shapes)) == ranks)
    return shapes
