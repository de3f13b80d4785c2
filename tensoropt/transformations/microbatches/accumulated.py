"""A step as a graph of microbatches one after another, with gradients added up.

The graph has, in this order: operators that do not depend on the microbatch, and the gradient that
arrives at each microbatch; each microbatch, forward and backward, after the one before it; the sums
and values of the whole step; the gradients by the tensors that microbatches read; and the operators
of the script that follow them. All of them are ordinary operators: a strategy gives them layouts,
and they are emitted as in any other step.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

import numpy as np

from tensoropt.graph.differentiation import sparse_tensors
from tensoropt.graph.operator import GradientTag, Graph, Operator, TensorName
from tensoropt.tensor_spec import TensorSpec
from tensoropt.transformations.microbatches.batch_cut import BatchCut, CallCut
from tensoropt.transformations.microbatches.copies import Alike, Copies
from tensoropt.transformations.microbatches.parts import scale
from tensoropt.transformations.microbatches.step_graph import (
    BOUNDARY,
    RESULT,
    SUM,
    StepGraph,
    named,
)

__all__ = ["Accumulation", "accumulated"]


def accumulated(cut: BatchCut, roots: Collection[str], alike: Alike = lambda *_: None) -> Graph:
    """The graph of a step, computed microbatch by microbatch.

    Args:
        cut: the division of the step into microbatches, without refusals.
        roots: names of the operators that are run or fetched.
        alike: gives keys of inputs that can share one read, see `Alike`.

    Returns:
        Operators in topological order. Those of microbatch 2 are named ``microbatch_2/...`` and
        have `Operator.copy_of`. Operators that are computed once, and results of the step, have
        their names in the script.
    """
    return Accumulation(cut, frozenset(roots), alike).graph()


class Accumulation:
    """Builds the graph of a step, section by section; see `accumulated`."""

    def __init__(self, cut: BatchCut, roots: frozenset[str], alike: Alike) -> None:
        cut.check()
        self._cut = cut
        self._whole = cut.graph
        self._roots = roots
        self._step = self._empty()
        self._copies = self._copier(alike)
        self._sparse = sparse_tensors(cut.graph)
        self._sums: dict[tuple[int, str], str] = {}  # by call and boundary
        self._looked_up = {
            number: [op for op in cut.graph if self._has_slices(op, number)] for number in cut.calls
        }
        self._slices_of: dict[str, list[str]] = {}  # slices of microbatches, by sparse gradient
        self._near: dict[tuple[int, TensorName | None], frozenset[str]] = {}
        self._next_call = 1 + max(cut.calls, default=-1)

    def _empty(self) -> StepGraph:
        return StepGraph()

    def _copier(self, alike: Alike) -> Copies:
        return Copies(self._cut, self._step, alike)

    def graph(self) -> Graph:
        """The graph; see `accumulated`."""
        for operator in self._whole:
            if operator.name in self._cut.before:
                self._step.add(operator)
        upstream = {number: self._upstream(number) for number in self._cut.calls}
        for microbatch in range(self._cut.made):
            self._microbatch(microbatch, upstream)
        after = [
            operator
            for operator in self._whole
            if operator.name not in self._cut.before and operator.name not in self._cut.indices
        ]
        self._results(after)
        for operator in after:
            if operator.gradient is None:
                self._step.add(operator)
            else:
                self._gradient(operator, operator.gradient)
        return Graph(self._step.operators)

    def _upstream(self, number: int) -> dict[TensorName, TensorName]:
        """The gradients that arrive at results of microbatches, by tensor of the script.

        The ys are affine in these results, so that the gradients at zero are the gradients.
        """
        call = self._cut.calls[number]
        prefix = f"upstream_{number}"
        at_zero: dict[TensorName, TensorName] = {}

        def zeros(tensor: TensorName) -> TensorName:
            if tensor not in at_zero:
                spec = self._whole.spec(tensor)
                name = f"{prefix}/{tensor.operator}_{tensor.index}"
                value = np.zeros(spec.shape, spec.dtype)
                at_zero[tensor] = self._step.constant(name, value, spec.dtype)
            return at_zero[tensor]

        for end in call.ends:
            zeros(end)
        for name in call.path:
            operator = self._whole[name]
            inputs = tuple(
                at_zero[tensor]
                if tensor in at_zero
                else tensor
                if tensor.operator in self._step.operators
                else zeros(tensor)
                for tensor in operator.inputs
            )
            copied = replace(
                operator,
                name=f"{prefix}/{name}",
                inputs=inputs,
                control_inputs=(),
                copy_of=operator.script_name,
            )
            self._step.add(copied)
            for n in range(len(operator.outputs)):
                at_zero[TensorName(name, n)] = TensorName(copied.name, n)
        pairs = zip(call.tag.ys, call.tag.grad_ys, strict=True)
        ys = [(at_zero[y], grad_y) for y, grad_y in pairs if y in at_zero]
        call_number, self._next_call = self._next_call, self._next_call + 1
        return {
            end: self._step.gradient(
                f"{prefix}/gradient/{end.operator}_{end.index}",
                call_number,
                ys,
                at_zero[end],
                TensorSpec(self._whole.spec(end).shape, self._whole.spec(end).dtype),
            )
            for end in call.ends
        }

    def _microbatch(
        self, microbatch: int, upstream: dict[int, dict[TensorName, TensorName]]
    ) -> None:
        """Add one microbatch, forward and backward."""
        self._copies.gate = named("end", microbatch - 1) if microbatch else ""
        copies = [self._copies.copy(self._whole[name], microbatch) for name in self._cut.indices]
        ends = [name for name in copies if not self._step.operators[name].is_placeholder]
        for number, call in self._cut.calls.items():
            ends += self._backward(microbatch, number, call, upstream[number])
        self._step.new("NoOp", named("end", microbatch), (), (), ends)

    def _backward(
        self, microbatch: int, number: int, call: CallCut, upstream: dict[TensorName, TensorName]
    ) -> list[str]:
        """Add one microbatch's gradients of one call to the sums; returns the operators' names."""
        if not call.ends:
            return []
        ys = []
        for end in call.ends:
            dim, factor = self._cut.dims.get(end), scale(self._cut, end)
            arriving = upstream[end]
            if dim is not None or factor != 1:
                name = named(arriving.operator, microbatch)
                arriving = self._copies.part(name, arriving, dim, microbatch, factor, None)
            ys.append((TensorName(named(end.operator, microbatch), end.index), arriving))
        call_number, self._next_call = self._next_call, self._next_call + 1
        boundaries = [name for name, calls in self._copies.read_in.items() if number in calls]
        stops = [TensorName(name, 0) for name in boundaries]
        stops += [
            TensorName(named(t.operator, microbatch), t.index)
            for t in call.tag.stop_gradients
            if t.operator in self._cut.indices
        ]
        after = [named(n, microbatch) for n in call.tag.after if n in self._cut.indices]
        # The gradient of a mean needs no value, and would be computed for all microbatches at once.
        after += [named(end.operator, microbatch) for end in call.ends]
        added = []
        for boundary in boundaries:
            x = TensorName(boundary, 0)
            name = named(f"gradient_{number}/{boundary}", microbatch)
            gradient = self._step.gradient(
                name, call_number, ys, x, self._step.spec(x), stops=stops, after=after
            )
            if (number, boundary) in self._sums:
                before = TensorName(self._sums[number, boundary], 0)
                name = named(f"sum_{number}/{boundary}", microbatch)
                gradient = self._step.new(
                    SUM, name, [before, gradient], [self._step.spec(x)], boundary=boundary
                )
            self._sums[number, boundary] = gradient.operator
            added.append(gradient.operator)
        for operator in self._looked_up[number]:
            tag = operator.gradient
            assert tag is not None, "slices are gradients"
            name = named(operator.name, microbatch)
            rows = operator.outputs[0].shape[:1]
            count = rows[0] // self._cut.microbatches if rows and rows[0] > 0 else -1
            spec = TensorSpec((count, *operator.outputs[0].shape[1:]), operator.outputs[0].dtype)
            self._step.gradient(name, call_number, ys, tag.x, spec, tag.part, stops, after)
            self._slices_of.setdefault(operator.name, []).append(name)
            added.append(name)
        return added

    def _has_slices(self, gradient: Operator, number: int) -> bool:
        """Whether an operator is a sparse gradient by a table that microbatches look rows up in."""
        tag = gradient.gradient
        if tag is None or tag.part == "dense" or tag.call != number:
            return False
        reached = {tag.x}
        for operator in self._whole:
            for n in self._cut.calls[number].differentiated.get(operator.name, ()):
                if operator.inputs[n] not in reached:
                    continue
                if operator.name in self._cut.indices:
                    return True
                tensor = TensorName(operator.name, 0)
                if tensor in self._sparse[number]:
                    reached.add(tensor)
        return False

    def _results(self, after: Iterable[Operator]) -> None:
        """Add the results of microbatches that later operators read, with the script's names."""
        read, waited_for = set(self._roots), set[str]()
        for operator in after:
            if operator.gradient is None:
                read.update(tensor.operator for tensor in operator.inputs)
            waited_for.update(operator.control_inputs)
        wanted = read | waited_for
        for name in self._cut.indices:
            if name not in wanted or name in self._step.operators:
                continue
            operator = self._whole[name]
            copies = self._cut.copies(name)
            if name not in read:
                self._step.new("NoOp", name, (), (), dict.fromkeys(copies))
                continue
            outputs = [TensorName(name, n) for n in range(len(operator.outputs))]
            is_sum = self._cut.sums(name)
            self._step.new(
                RESULT,
                name,
                [TensorName(copy, output.index) for output in outputs for copy in copies],
                operator.outputs,
                dims=tuple(self._cut.dims.get(output) for output in outputs),
                scales=tuple(scale(self._cut, output) if is_sum else None for output in outputs),
            )

    def _gradient(self, operator: Operator, tag: GradientTag) -> None:
        """Add a gradient of the script: by tensors that microbatches read, and by later ones."""
        call = self._cut.calls[tag.call]
        pairs = list(zip(tag.ys, tag.grad_ys, strict=True))
        ys: list[tuple[TensorName, TensorName | None]] = [
            (TensorName(boundary, 0), TensorName(total, 0))
            for (number, boundary), total in self._sums.items()
            if number == tag.call
        ]
        direct = self._reached(tag.call)
        ys += [pair for pair in pairs if pair[0].operator in direct]
        slices = self._slices_of.get(operator.name)
        if slices and not self._is_near(tag, ys):
            self._joined(operator, slices)
            return
        stops = [*call.ends, *tag.stop_gradients]
        stops = [tensor for tensor in stops if tensor.operator in self._step.operators]
        name = operator.name if not slices else f"rest_of/{operator.name}"
        spec = operator.outputs[0]
        if slices:
            spec = TensorSpec((-1, *spec.shape[1:]), spec.dtype)
        self._step.gradient(name, tag.call, ys or pairs, tag.x, spec, tag.part, stops, tag.after)
        if slices:
            self._joined(operator, slices, [name])

    def _is_near(
        self, tag: GradientTag, ys: Iterable[tuple[TensorName, TensorName | None]]
    ) -> bool:
        """Whether x reaches some of the ys without a microbatch in between."""
        makers = [self._step.operators[y.operator] for y, _ in ys]
        near = {op.inputs[0].operator if op.type == BOUNDARY else op.name for op in makers}
        return not self._reached(tag.call, tag.x).isdisjoint(near)

    def _joined(self, operator: Operator, slices: list[str], others: Sequence[str] = ()) -> None:
        """Add the slices of all microbatches, and others, as one result."""
        not_made = slices[:1] * (self._cut.microbatches - self._cut.made)
        parts = [TensorName(name, 0) for name in [*not_made, *slices, *others]]
        self._step.new(RESULT, operator.name, parts, operator.outputs, dims=(0,), scales=(None,))

    def _reached(self, number: int, only: TensorName | None = None) -> frozenset[str]:
        """The operators that a call's xs, or only one x, reach without a microbatch in between."""
        if (number, only) not in self._near:
            flowing = self._cut.calls[number].differentiated
            tags = [op.gradient for op in self._whole if op.gradient is not None]
            xs = [tag.x for tag in tags if tag.call == number]
            reached = {x.operator for x in xs if only in (None, x)}
            for operator in self._whole:
                if operator.name in self._cut.indices:
                    continue
                numbers = flowing.get(operator.name, ())
                if any(operator.inputs[n].operator in reached for n in numbers):
                    reached.add(operator.name)
            self._near[number, only] = frozenset(reached)
        return self._near[number, only]
