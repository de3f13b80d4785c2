"""The operators of a training step that can be computed microbatch by microbatch.

The batch is cut as a split of tensors is. Starting from the fed values, an operator is cut along
the index of its iteration space that runs over examples, if its kernel on some examples computes
the outputs of these examples. If that index is summed over, the outputs are shares of a sum (or of
a mean, after a division). Operators that read sums, or combine examples in another way, are
computed once, after the last microbatch, from the sums and from the values of all examples. The
backward pass comes before them, so each loss must be affine in the results of microbatches, with
coefficients that are known before (`tensoropt.transformations.microbatches.affine`). Then the
step's gradients are sums over microbatches.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from tensoropt.errors import GraphError
from tensoropt.graph.differentiation import differentiated_inputs, sparse_tensors
from tensoropt.graph.operator import GradientTag, Graph, Operator, TensorName
from tensoropt.parallel.choices.kinds import kinds_of
from tensoropt.parallel.configuration import divisible
from tensoropt.tdl import Derivation
from tensoropt.tdl.ops.random import DRAWN, RANDOM_TYPES
from tensoropt.tensor_spec import TensorSpec
from tensoropt.transformations.microbatches.affine import coefficients
from tensoropt.transformations.microbatches.batch_cut import BatchCut, CallCut, Refusal

__all__ = ["cut_along_batch"]


_SHAPES = frozenset({"Rank", "Shape", "Size"})
_NOT_AFFINE = "computes something other than a sum, mean or multiple from sums over the batch"


def cut_along_batch(
    graph: Graph, batch_inputs: Iterable[str], microbatches: int, made: int | None = None
) -> BatchCut:
    """Find the operators of a step that are computed microbatch by microbatch.

    Args:
        graph: one training step, shapes bound.
        batch_inputs: placeholders whose first dimension is the batch; other names are ignored.
        microbatches: number of microbatches; one is the whole batch.
        made: see `BatchCut`; by default all of them.

    Raises:
        GraphError: if no placeholder is fed the batch, if placeholders have different numbers of
            examples, or if these do not divide into microbatches.
    """
    cut = _Cutter(graph, frozenset(batch_inputs), microbatches).cut()
    return cut if made is None else replace(cut, made=made)


def _with_known_shapes(graph: Graph) -> Graph:
    """The graph with constants for shapes of tensors, because a microbatch's shapes differ.

    The importer leaves shapes that have control inputs, such as a comparison of shapes.
    """
    operators = dict(graph.operators)
    for operator in graph:
        if operator.type not in _SHAPES or operator.is_constant:
            continue
        shape, (spec,) = operator.input_specs[0].shape, operator.outputs
        if -1 in shape or (not shape and operator.type != "Rank" and spec.shape != (0,)):
            continue
        of_type: dict[str, Any] = {"Shape": shape, "Size": prod(shape), "Rank": len(shape)}
        value = np.asarray(of_type[operator.type], spec.dtype)
        known = TensorSpec(value.shape, spec.dtype, value)
        operators[operator.name] = replace(
            operator, type="Const", inputs=(), input_specs=(), outputs=(known,), synthetic=True
        )
    return Graph(operators) if operators != graph.operators else graph


class _Cutter:
    """The work of `cut_along_batch`, on one graph."""

    def __init__(self, graph: Graph, batch_inputs: frozenset[str], microbatches: int) -> None:
        self._graph = _with_known_shapes(graph)
        self._count = microbatches
        self._derivations = kinds_of(self._graph).derivations
        self._refusals: list[Refusal] = []
        self._indices: dict[str, int | None] = {}
        self._dims: dict[TensorName, int] = {}
        self._slices: dict[tuple[str, int], int] = {}
        self._depends: set[str] = set()
        self._changing: set[str] = set()  # operators that depend on a gradient or an assignment
        self._uncut: dict[str, str] = {}  # reasons why operators that read examples are not cut
        fed = [op for op in graph if op.is_placeholder and op.name in batch_inputs]
        self._check_fed(fed)
        for operator in fed:
            self._indices[operator.name] = None
            self._dims[TensorName(operator.name, 0)] = 0
            self._depends.add(operator.name)
        for operator in self._graph:
            if operator.name not in self._depends:
                self._visit(operator)
        self._cut_draws()

    def _check_fed(self, fed: Collection[Operator]) -> None:
        sizes = {operator.outputs[0].shape[:1] for operator in fed}
        shapes = ", ".join(f"{op.name!r} of {list(op.outputs[0].shape)}" for op in fed) or "none"
        if len(sizes) != 1 or not all(sizes):
            raise GraphError(
                "a step that is cut into microbatches is fed by placeholders that have the same "
                f"number of examples. Got {shapes}."
            )
        if next(iter(sizes))[0] % self._count:
            raise GraphError(
                "a batch divides into microbatches with the same number of examples. Got "
                f"{shapes} for {self._count} microbatches; take a batch that is a multiple of "
                f"{self._count}."
            )

    def cut(self) -> BatchCut:
        """The result of `cut_along_batch`."""
        tags = {op.gradient.call: op.gradient for op in self._graph if op.gradient is not None}
        calls, early = {}, set()
        for number, tag in tags.items():
            call, needed = self._call(number, tag)
            calls[number] = call
            early |= needed
        for name in self._indices:
            for tensor in self._graph[name].inputs:
                if tensor.operator not in self._indices:
                    early.add(tensor.operator)
            early.update(
                other
                for other in self._graph[name].control_inputs
                if other not in self._indices and other in self._graph
            )
        order = {name: place for place, name in enumerate(self._graph.operators)}
        ordered = sorted(self._indices, key=order.__getitem__)
        return BatchCut(
            self._graph,
            self._count,
            self._count,
            self._derivations,
            {name: self._indices[name] for name in ordered},
            self._dims,
            self._slices,
            self._closed(early),
            calls,
            tuple(dict.fromkeys(self._refusals)),
        )

    def _refuse(self, name: str, reason: str) -> None:
        self._refusals.append(Refusal(name, self._graph[name].type, reason))

    def _visit(self, operator: Operator) -> None:
        """Decide whether an operator is cut."""
        name = operator.name
        needed = [t.operator for t in operator.inputs] + list(operator.control_inputs)
        gradient = operator.gradient is not None
        if gradient or operator.mutates or not self._changing.isdisjoint(needed):
            self._changing.add(name)
        read = {tensor.operator for tensor in operator.inputs}
        if self._depends.isdisjoint(read) and name not in self._changing:
            return  # operators of the batch among its control inputs then run early, too
        self._depends.add(name)
        index = self._index(operator)
        if isinstance(index, str):
            self._uncut[name] = index
            return
        derivation = self._derivations[name]
        self._indices[name] = index
        if index is None:
            return
        for number, of_dims in enumerate(derivation.inputs):
            if operator.inputs[number] not in self._dims and index in of_dims:
                self._slices[name, number] = of_dims.index(index)
        self._note_outputs(operator, index)

    def _note_outputs(self, operator: Operator, index: int) -> None:
        for number, of_dims in enumerate(self._derivations[operator.name].outputs):
            if index in of_dims:
                self._dims[TensorName(operator.name, number)] = of_dims.index(index)

    def _index(self, operator: Operator) -> int | str | None:
        """The index along which an operator is cut, or the reason why it is not cut.

        If one microbatch has all examples, nothing has to be cut, even if it mixes examples; None
        then says that an operator has no such index.
        """
        if operator.gradient is not None:
            return "is a gradient"
        if operator.mutates:
            return "changes a variable"
        derivation = self._derivations[operator.name]
        indices: set[int | None] = set()
        for number, tensor in enumerate(operator.inputs):
            if tensor.operator not in self._depends:
                continue
            is_late = tensor.operator not in self._indices
            if is_late or (self._count > 1 and self._is_share(tensor)):
                return self._why_late(operator, tensor)
            if tensor in self._dims:
                known = derivation.inputs[number : number + 1]
                of_dims = known[0] if known else ()
                dim = self._dims[tensor]
                indices.add(of_dims[dim] if dim < len(of_dims) else None)
        if not self._changing.isdisjoint(operator.control_inputs):
            return "runs after a change of a variable"
        if self._count == 1:
            return indices.pop() if len(indices) == 1 else None
        if not indices:
            return ""
        if len(indices) > 1:
            return "combines different examples with each other"
        (index,) = indices
        if index is None:
            return self._why_whole(derivation)
        return self._why_not(operator, derivation, index) or index

    def _why_late(self, operator: Operator, tensor: TensorName) -> str:
        if any(tensor in self._dims for tensor in operator.inputs):
            return f"combines examples with {str(tensor)!r}, which depends on all of them"
        return ""

    def _is_share(self, tensor: TensorName) -> bool:
        index = self._indices[tensor.operator]
        if index is None or tensor in self._dims:
            return False
        cut_index = self._derivations[tensor.operator].indices[index]
        return cut_index.reducer is not None or tensor.index in cut_index.partial_outputs

    def _why_whole(self, derivation: Derivation) -> str:
        if not derivation.indices:
            return "has no description that says what it does with different examples"
        return "takes the examples all together"

    def _why_not(self, operator: Operator, derivation: Derivation, index: int) -> str:
        cut_index = derivation.indices[index]
        halos = any(halo.index == index for halo in derivation.halos)
        if cut_index.has_inner_collectives or halos:
            return "combines different examples: its result for one example depends on the others"
        if cut_index.reducer not in (None, "sum"):
            return f"takes the {cut_index.reducer} over examples"
        if divisible(derivation)[index] % self._count:
            return f"has examples in rows that do not divide into {self._count} microbatches"
        for number, of_dims in enumerate(derivation.inputs):
            if of_dims.count(index) > 1:
                return "combines different examples with each other"
            if index in of_dims and operator.inputs[number] not in self._dims:
                if operator.inputs[number].operator in self._depends:
                    return "cuts a tensor that is the same for all examples"
                if operator.input_specs[number].dtype == "resource":
                    return "cuts a variable along its examples"
        return ""

    def _cut_draws(self) -> None:
        """Cut random tensors that are drawn for examples; a mask has the shape of its tensor."""
        drawn: set[str] = set()
        for operator in self._graph:
            if operator.name in self._depends:
                continue
            if operator.type in RANDOM_TYPES or any(t.operator in drawn for t in operator.inputs):
                drawn.add(operator.name)
        wanted: dict[TensorName, set[int]] = {}
        for name, number in self._slices:
            tensor = self._graph[name].inputs[number]
            wanted.setdefault(tensor, set()).add(self._slices[name, number])
        readers = self._graph.consumers()
        for name in reversed([n for n in self._graph.operators if n in drawn]):
            operator = self._graph[name]
            dims = wanted.get(TensorName(name, 0), set())
            if len(operator.outputs) != 1 or len(dims) != 1 or operator.control_inputs:
                continue
            read = readers[TensorName(name, 0)]
            if any((reader.name, number) not in self._slices for reader, number in read):
                continue
            (dim,) = dims
            index = self._derivations[name].outputs[0][dim]
            if index is None or not self._is_drawn_in_parts(operator, index):
                continue
            self._indices[name] = index
            self._dims[TensorName(name, 0)] = dim
            for reader, number in read:
                del self._slices[reader.name, number]
            for number, of_dims in enumerate(self._derivations[name].inputs):
                if index in of_dims:
                    self._slices[name, number] = of_dims.index(index)
                    wanted.setdefault(operator.inputs[number], set()).add(of_dims.index(index))

    def _is_drawn_in_parts(self, operator: Operator, index: int) -> bool:
        """Whether microbatches can draw parts of a random tensor along an index."""
        derivation = self._derivations[operator.name]
        cut_index = derivation.indices[index]
        if cut_index.reducer is not None or operator.mutates:
            return False
        if cut_index.spelled_out and operator.type not in DRAWN:
            return False
        return divisible(derivation)[index] % self._count == 0

    def _call(self, number: int, tag: GradientTag) -> tuple[CallCut, set[str]]:
        """The cut of one call, and the operators that it needs before the first microbatch."""
        flowing = differentiated_inputs(self._graph, number)
        cut = {name for name in flowing if name in self._indices}
        ends = [y for y in tag.ys if y.operator in self._indices]
        path: dict[str, None] = {}  # an ordered set
        refused: set[str] = set()  # operators that are refused, or that read one of these
        early: set[str] = {grad_y.operator for grad_y in tag.grad_ys if grad_y is not None}
        for operator in self._graph:
            if operator.name in self._indices or operator.name not in flowing:
                continue
            if any(tensor.operator in refused for tensor in operator.inputs):
                refused.add(operator.name)
                continue
            numbers = tuple(
                n
                for n in flowing[operator.name]
                if operator.inputs[n].operator in cut or operator.inputs[n].operator in path
            )
            read = coefficients(operator, numbers) if numbers else None
            if read is not None:
                path[operator.name] = None
                ends += [operator.inputs[n] for n in numbers if operator.inputs[n].operator in cut]
                early.update(operator.inputs[n].operator for n in read)
            elif numbers or self._uncut.get(operator.name):
                refused.add(operator.name)
                self._refuse(operator.name, self._uncut.get(operator.name) or _NOT_AFFINE)
        for other in self._graph:
            if other.gradient is None or other.gradient.call != number:
                continue
            x = other.gradient.x
            if x.operator in self._depends:
                self._refuse(x.operator, "depends on the batch, and is differentiated by")
        self._check_sparse(number, flowing)
        for name in tag.after:
            if self._changes_for(name, flowing):
                self._refuse(name, "changes a variable before gradients are computed")
        call = CallCut(tag, tuple(dict.fromkeys(ends)), tuple(path), flowing)
        return call, early

    def _changes_for(self, name: str, flowing: Collection[str]) -> bool:
        """Whether an operator changes a variable that microbatches or gradients read.

        Moving averages of statistics do not count.
        """
        operator = self._graph[name]
        changed = {operator.inputs[n].operator for n in operator.mutates}
        for other in self._graph:
            if other.mutates or changed.isdisjoint(t.operator for t in other.inputs):
                continue
            if other.name in self._indices or other.name in flowing:
                return True
            if other.type == "ReadVariableOp":
                changed.add(other.name)
        return False

    def _check_sparse(self, number: int, flowing: Mapping[str, tuple[int, ...]]) -> None:
        """Check that each table has either sparse or dense gradients, in all calls."""
        sparse = sparse_tensors(self._graph)
        elsewhere = {t for call, tensors in sparse.items() if call != number for t in tensors}
        for name in self._indices:
            for n in flowing.get(name, ()):
                tensor = self._graph[name].inputs[n]
                if tensor in elsewhere and tensor not in sparse[number]:
                    self._refuse(tensor.operator, "has a sparse gradient, and a dense one as well")

    def _closed(self, names: set[str]) -> frozenset[str]:
        """Some operators and all that they need, to be computed before the first microbatch."""
        closed: set[str] = set()
        waiting = list(names)
        while waiting:
            name = waiting.pop()
            if name in closed:
                continue
            closed.add(name)
            operator = self._graph[name]
            if operator.gradient is not None:
                self._refuse(name, "is a gradient, and is needed before the last microbatch")
            elif operator.mutates:
                self._refuse(name, "changes a variable before the last microbatch")
            else:
                waiting += [t.operator for t in operator.inputs]
                waiting += [n for n in operator.control_inputs if n in self._graph]
        return frozenset(closed)
