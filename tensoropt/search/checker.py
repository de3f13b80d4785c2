"""What a strategy costs, worked out from equations 1 to 3 alone: a certificate for the search.

One operator and one edge at a time, for the one configuration that each operator has: none of the
search's tables, slots or groups, and none of its code. An operator's costs are those of its piece;
an edge's are those of the cheapest way from the layout in which the tensor is made to that in
which it is read, and, where a gradient comes back, from the gradient's layout at the reader to
that at the producer. Ways are looked for in `cheapest_way`. Layouts are a `Strategy`'s, which are
those that execution has; prices are the cost model's. Slow, and simple.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from tensoropt.cost.memory import Footprint
from tensoropt.cost.model import CostModel
from tensoropt.cost.operator_time import OperatorWork
from tensoropt.errors import OptionError
from tensoropt.graph.backward_reads import VIEWS, BackwardReads
from tensoropt.graph.differentiation import differentiated_inputs, sparse_tensors
from tensoropt.graph.operator import Graph, Operator, TensorName
from tensoropt.graph.tensor import TensorSpec
from tensoropt.parallel.configuration import Configuration
from tensoropt.parallel.layout import Layout
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.sparse import looks_up_rows, slice_layouts, travels_sparse
from tensoropt.parallel.strategy import Strategy, derivation_of
from tensoropt.search.cheapest_way import cheapest_way
from tensoropt.tdl import Derivation
from tensoropt.tdl.registry import find

__all__ = ["Checker", "Cost"]

_Shape = tuple[int, ...]
_Splits = tuple[tuple[int, ...], ...]

# They name a value, or stand for a gradient: no time, and no memory but a loader's.
_NAMES = frozenset({"Const", "Gradient", "Identity", "NoOp", "Placeholder", "ReadVariableOp"})


@dataclass(frozen=True, slots=True)
class Cost:
    """Bytes on one device, and nanoseconds of a step."""

    memory: int
    time: int

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.memory + other.memory, self.time + other.time)


class Checker:
    """Costs of a graph's strategies; what ways cost is remembered from one to the next.

    Args:
        graph: the operators.
        mesh: the devices.
        cost: the prices.
        batch_placeholders: loaded data parallel.
        reads: what the backward pass reads of the forward pass.
    """

    def __init__(
        self,
        graph: Graph,
        mesh: Mesh,
        cost: CostModel,
        batch_placeholders: frozenset[str] = frozenset(),
        reads: BackwardReads | None = None,
    ) -> None:
        self._graph = graph
        self._mesh = mesh
        self._cost = cost
        self._batch_placeholders = batch_placeholders
        self._reads = reads or BackwardReads()
        self._copies = _Copies(graph, self._reads)
        self._carried = differentiated_inputs(graph)
        self._sparse = frozenset().union(*sparse_tensors(graph).values())
        self._senders = Counter(
            graph[name].inputs[number] for name, some in self._carried.items() for number in some
        )
        self._ways: dict[tuple[_Shape, int, Layout, Layout], int] = {}

    def cost(self, configurations: Mapping[str, Configuration]) -> Cost:
        """Equation 3: all operators, all edges, and what a step takes besides.

        Constants cost nothing: every device has them, and takes its piece when a program is built.

        Args:
            configurations: by operator name, as a plan or `GraphProblem.configurations` has them.

        Raises:
            OptionError: if one does not keep all copies that the backward pass reads.
        """
        for name, configuration in configurations.items():
            if configuration.kept != "both":
                raise OptionError(
                    "the checker prices strategies that keep every copy which the backward pass "
                    f"reads. Got {configuration} for {name!r}; search without reuse."
                )
        strategy = Strategy(self._graph, self._mesh, configurations, self._batch_placeholders)
        parts = [*self._parts(strategy)]
        whole = sum(parts, Cost(0, 0))
        return whole + Cost(0, self._cost.step_nanoseconds() if parts else 0)

    def _parts(self, strategy: Strategy) -> Iterator[Cost]:
        for operator in self._graph:
            if operator.is_constant:
                continue
            yield self.operator(strategy, operator)
            yield Cost(0, self._sums(strategy, operator))
            if operator.gradient is not None:
                continue  # a gradient is computed where what it is of is made
            for number, tensor in enumerate(operator.inputs):
                if not self._graph[tensor.operator].is_constant:
                    yield self.edge(strategy, operator, number)

    def operator(self, strategy: Strategy, operator: Operator) -> Cost:
        """Equation 1: one operator, forward and backward, on its piece."""
        configuration = strategy.configurations[operator.name]
        derivation = strategy.derivations[operator.name]
        piece = _Piece(operator, derivation, configuration.splits, self._mesh)
        use = self._cost.operator_memory(_footprint(piece, self._copies))
        if operator.is_variable or operator.type in _NAMES:
            return Cost(use.kept, 0)
        backward = len(self._carried.get(operator.name, ()))
        time = self._cost.operator_nanoseconds(_work(piece, backward)).total
        time += sum(
            count * self._cost.collective_nanoseconds(kind, axes, bytes_)
            for kind, axes, bytes_, count in (*_inside(piece), *_halos(piece, backward))
        )
        return Cost(use.kept, time)

    def _sums(self, strategy: Strategy, operator: Operator) -> int:
        """Nanoseconds of adding up the gradients that several readers send back."""
        total = 0
        for number, spec in enumerate(operator.outputs):
            tensor = TensorName(operator.name, number)
            count = self._senders.get(tensor, 0)
            own = operator.attributes.get("dtype", spec.dtype) if operator.is_variable else None
            dtype = str(own or spec.dtype).removesuffix("_ref")
            floating = dtype.startswith(("float", "bfloat", "half", "complex"))
            if count < 2 or tensor in self._sparse or not (_known(spec) and floating):
                continue  # slices are put together, not added
            layout = strategy.output_slot(tensor).gradient
            part = TensorSpec(_local(spec.shape, layout.dims, self._mesh), dtype)
            work = _work(_whole_sum(part, count, self._mesh), 0)
            total += self._cost.operator_nanoseconds(work).total
        return total

    def edge(self, strategy: Strategy, operator: Operator, number: int) -> Cost:
        """Equation 2: one input, from where it is made, and its gradient back."""
        spec = operator.input_specs[number]
        made = strategy.output_slot(operator.inputs[number])
        read = strategy.input_slot(operator, number)
        time = self._way(spec.shape, spec.itemsize, made.forward, read.forward)
        if number in self._carried.get(operator.name, ()):
            time += self._gradient(operator, number, read.gradient, made.gradient)
        footprint = Footprint()
        moved = made.forward != read.forward
        if moved and self._copies.of_edge(operator, number) and _known(spec):
            copy = prod(_local(spec.shape, read.forward.dims, self._mesh)) * spec.itemsize
            footprint = Footprint(moved_bytes=copy)
        return Cost(self._cost.operator_memory(footprint).kept, time)

    def _gradient(self, operator: Operator, number: int, source: Layout, target: Layout) -> int:
        """A gradient's way back; of a table of which rows are looked up it is in slices."""
        spec = operator.input_specs[number]
        if looks_up_rows(operator, number):
            rows: TensorSpec = operator.input_specs[1]
            stays = operator.inputs[number] in self._sparse
            if stays or travels_sparse(rows.elements, spec.shape, target):
                here, there = slice_layouts(source, target)
                slices = (rows.elements, *spec.shape[1:])
                return self._way(slices, spec.itemsize, here, there) + self._way(
                    slices[:1], rows.itemsize, Layout(here.dims[:1]), Layout(((),))
                )
        return self._way(spec.shape, spec.itemsize, source, target)

    def _way(self, shape: _Shape, itemsize: int, source: Layout, target: Layout) -> int:
        shape = tuple(1 if extent < 0 else extent for extent in shape)
        key = shape, itemsize, source, target
        if key not in self._ways:
            self._ways[key] = cheapest_way(
                self._mesh, shape, itemsize, source, target, self._cost.collective_nanoseconds
            )
        return self._ways[key]


class _Piece:
    """What one device has of one operator.

    Attributes:
        operator: which.
        derivation: its iteration space.
        splits: of each index, the axes that split it.
        mesh: the devices.
        inputs, outputs: local shapes by the derivation, whose dimensions are those of the specs.
    """

    def __init__(
        self, operator: Operator, derivation: Derivation, splits: _Splits, mesh: Mesh
    ) -> None:
        self.operator = operator
        self.derivation = derivation
        self.splits = splits
        self.mesh = mesh
        self.inputs = self._local(self.derivation.inputs, self.derivation.input_shapes)
        self.outputs = self._local(self.derivation.outputs, self.derivation.output_shapes)

    def _local(
        self, dims: tuple[tuple[int | None, ...], ...], shapes: tuple[_Shape, ...]
    ) -> tuple[_Shape, ...]:
        axes = [tuple(() if n is None else self.splits[n] for n in numbers) for numbers in dims]
        return tuple(_local(s, a, self.mesh) for s, a in zip(shapes, axes, strict=True))

    def output_bytes(self, numbers: Sequence[int] | None = None) -> int:
        """Of all outputs of a known size, or of those numbered so."""
        return sum(
            prod(shape) * spec.itemsize
            for number, (spec, shape) in enumerate(
                zip(self.operator.outputs, self.outputs, strict=False)
            )
            if _known(spec) and (numbers is None or number in numbers)
        )

    def input_bytes(self, numbers: Sequence[int]) -> int:
        """Of the inputs of a known size numbered so, as they lie here."""
        specs = self.operator.input_specs
        return sum(
            prod(self.inputs[number]) * specs[number].itemsize
            for number in numbers
            if _known(specs[number])
        )

    @property
    def split_names(self) -> frozenset[str]:
        """The names of the indices that are split."""
        indices = zip(self.derivation.indices, self.splits, strict=True)
        return frozenset(index.name for index, axes in indices if axes)


def _whole_sum(part: TensorSpec, count: int, mesh: Mesh) -> _Piece:
    """An operator that adds up so many tensors, on one device alone."""
    operator = Operator(
        name="sum",
        type="AddN",
        inputs=tuple(TensorName(f"term{number}", 0) for number in range(count)),
        input_specs=(part,) * count,
        outputs=(part,),
        attributes={"N": count, "T": part.dtype},
    )
    derivation = derivation_of(operator)
    return _Piece(operator, derivation, ((),) * len(derivation.indices), mesh)


def _work(piece: _Piece, backward: int) -> OperatorWork:
    operator, derivation = piece.operator, piece.derivation
    pieces = piece.mesh.pieces([axis for axes in piece.splits for axis in axes])
    known = [_known(spec) for spec in operator.input_specs]
    shapes = tuple(s if k else () for s, k in zip(piece.inputs, known, strict=True))
    description = find(operator.type)
    if description is not None and description.moved is not None:
        elements = description.moved(piece.split_names, piece.inputs, piece.outputs)
        specs = (*operator.outputs, *operator.input_specs)
        values = [s.itemsize for s in specs if not s.dtype.startswith(("int", "resource"))]
        moved = elements * (values[0] if values else max(s.itemsize for s in specs))
    else:
        read = zip(shapes, operator.input_specs, strict=True)
        moved = sum(prod(shape) * spec.itemsize for shape, spec in read) + piece.output_bytes()
    contracts = any(
        index.reducer == "sum" and sum(number in dims for dims in derivation.inputs) > 1
        for number, index in enumerate(derivation.indices)
    )
    attributes = {
        key: repr(value)
        for key, value in operator.attributes.items()
        if not key.startswith("_") and key not in ("container", "shared_name")
    }
    return OperatorWork(
        family="contraction" if contracts else "elementwise",
        dtype=operator.outputs[0].dtype if operator.outputs else "float32",
        flops=derivation.flops // pieces,
        bytes=moved,
        differentiated_inputs=backward,
        operator=operator.type,
        attributes=tuple(sorted(attributes.items())),
        local_shapes=shapes,
    )


_Collective = tuple[str, tuple[int, ...], int, int]  # kind, axes, bytes, how often


def _inside(piece: _Piece) -> Iterator[_Collective]:
    """Collectives inside an operator whose split a rule of its own spells out."""
    description = find(piece.operator.type)
    if description is None or description.inner_collectives is None:
        return
    split = {
        index.name: axes
        for index, axes in zip(piece.derivation.indices, piece.splits, strict=True)
        if index.spelled_out and axes
    }
    if not split:
        return
    axes = tuple(sorted(axis for own in split.values() for axis in own))
    for each in description.inner_collectives(frozenset(split), piece.inputs, piece.outputs):
        yield each.kind, axes, each.elements * piece.operator.outputs[0].itemsize, each.times


def _halos(piece: _Piece, backward: int) -> Iterator[_Collective]:
    """What windows read of neighbours' pieces; its gradient comes back, if the input's does."""
    for halo in piece.derivation.halos:
        axes = piece.splits[halo.index]
        if not axes or not piece.derivation.indices[halo.index].spelled_out:
            continue
        shape, specs = piece.inputs[halo.input], piece.operator.input_specs
        row = prod(shape) // shape[halo.dim] * specs[halo.input].itemsize
        floating = [s.dtype.startswith(("float", "bfloat", "half")) for s in specs]
        times = 2 if backward > sum(floating) - floating[halo.input] else 1
        width = halo.before + halo.after
        yield "exchange", axes, row * width, times
        yield "slice", axes, row * (shape[halo.dim] + width), times


def _footprint(piece: _Piece, copies: _Copies) -> Footprint:
    operator = piece.operator
    if operator.is_variable:
        dtype = str(operator.attributes.get("dtype", operator.outputs[0].dtype))
        itemsize = TensorSpec((), dtype.removesuffix("_ref")).itemsize
        return Footprint(variable_bytes=prod(piece.outputs[0]) * itemsize)
    if operator.gradient is not None:
        return Footprint(gradient_bytes=piece.output_bytes())
    read = piece.input_bytes(copies.at_reader(operator))
    names = operator.type in _NAMES and not operator.is_placeholder
    if operator.mutates or operator.type in VIEWS or names:
        return Footprint(moved_bytes=read)
    made = piece.output_bytes()
    return Footprint(
        output_bytes=made,
        added_bytes=made if operator.type in ("BiasAdd", "BiasAddV1") else 0,
        kept_bytes=piece.output_bytes(copies.where_made(operator)),
        moved_bytes=read,
    )


class _Copies:
    """Where tensors are kept that the backward pass reads (the execution memory model).

    A view is the tensor that it is a view of. A variable and what is fed are there anyway. What
    one gradient alone reads, not its producer's, is kept as it lies at the one that reads it. Any
    other tensor is kept as it is made, and wherever it is read in another layout.
    """

    def __init__(self, graph: Graph, reads: BackwardReads) -> None:
        self._graph = graph
        self._reads = reads
        readers: dict[TensorName, list[tuple[str, int]]] = {}
        self._leading: set[str] = set()  # views between a tensor and what reads it
        for operator in graph:
            for number in reads.inputs.get(operator.name, ()):
                tensor, views = self._viewed(operator.inputs[number])
                readers.setdefault(tensor, []).append((operator.name, number))
                self._leading.update(views)
        producers = {
            self._viewed(TensorName(name, number))[0]
            for name, numbers in reads.outputs.items()
            for number in numbers
        }
        self._elsewhere = {
            tensor
            for tensor, one in readers.items()
            if len(one) == 1 and tensor not in producers and not self._is_there(tensor)
        }
        self._made = {*readers, *producers} - self._elsewhere
        self._at_reader = {end for tensor in self._elsewhere for end in readers[tensor]}

    def where_made(self, operator: Operator) -> tuple[int, ...]:
        """The outputs that are kept as they are made; what is fed is there."""
        numbers = range(len(operator.outputs))
        if operator.is_placeholder:
            return tuple(numbers)
        return tuple(n for n in numbers if TensorName(operator.name, n) in self._made)

    def at_reader(self, operator: Operator) -> tuple[int, ...]:
        """The inputs that are kept as they lie at this operator, and nowhere else."""
        numbers = range(len(operator.inputs))
        return tuple(n for n in numbers if (operator.name, n) in self._at_reader)

    def of_edge(self, operator: Operator, number: int) -> bool:
        """Whether a copy that resharding makes of an input is kept beside the tensor."""
        read = number in self._reads.inputs.get(operator.name, ())
        if operator.type in VIEWS:
            read = number == 0 and operator.name in self._leading
        return read and self._viewed(operator.inputs[number])[0] not in self._elsewhere

    def _is_there(self, tensor: TensorName) -> bool:
        operator = self._graph[tensor.operator]
        return operator.is_variable or operator.is_placeholder or operator.is_constant

    def _viewed(self, tensor: TensorName) -> tuple[TensorName, list[str]]:
        """What a tensor is a view of, and the views on the way."""
        views = []
        while self._graph[tensor.operator].type in VIEWS:
            operator = self._graph[tensor.operator]
            if operator.is_constant:
                break
            views.append(operator.name)
            tensor = operator.inputs[0]
        return tensor, views


def _local(shape: _Shape, dims: tuple[tuple[int, ...], ...], mesh: Mesh) -> _Shape:
    return tuple(extent // mesh.pieces(axes) for extent, axes in zip(shape, dims, strict=True))


def _known(spec: TensorSpec) -> bool:
    return all(extent >= 0 for extent in spec.shape)
