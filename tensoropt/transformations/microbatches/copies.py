"""Copies of operators for the examples of one microbatch, and the tensors that they read."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable
from dataclasses import replace
from typing import Any

import numpy as np

from tensoropt.graph.differentiation import sparse_tensors
from tensoropt.graph.operator import Operator, TensorName
from tensoropt.tensor_spec import TensorSpec
from tensoropt.transformations.microbatches.batch_cut import BatchCut
from tensoropt.transformations.microbatches.parts import operator_of_one, part_of
from tensoropt.transformations.microbatches.step_graph import BOUNDARY, PART, StepGraph, named

__all__ = ["Alike", "Copies"]

Alike = Callable[[Operator, int], Hashable]
"""A function of an operator of the first microbatch and the number of an input. It returns a key:
inputs of one tensor with equal keys share one boundary operator, which reads the tensor."""


class Copies:
    """Makes the operators of each microbatch.

    Args:
        cut: the division of the step into microbatches.
        step: the graph to which the operators are added. It already has the operators that run
            before the first microbatch.
        alike: gives keys of inputs that can share one read, see `Alike`.

    Attributes:
        read_in: for each boundary, the calls of ``tf.gradients`` whose gradients flow to it.
        origins: for each boundary, the tensor of the script that is read there.
        gate: name of the operator for which the next copies wait; empty for none.
    """

    def __init__(self, cut: BatchCut, step: StepGraph, alike: Alike) -> None:
        self._cut = cut
        self._whole = cut.graph
        self._step = step
        self._alike = alike
        self._flowing: dict[tuple[str, int], list[int]] = {}
        for number, call in cut.calls.items():
            for name, inputs in call.differentiated.items():
                for n in inputs:
                    self._flowing.setdefault((name, n), []).append(number)
        self._sparse = sparse_tensors(cut.graph)
        self._boundaries: dict[Hashable, str] = {}
        self._boundary_of: dict[tuple[str, int], str] = {}
        self.read_in: dict[str, set[int]] = {}
        self.origins: dict[str, TensorName] = {}
        self.gate = ""

    def copy(self, operator: Operator, microbatch: int) -> str:
        """Add an operator on the examples of one microbatch, and return its name."""
        copied, local = operator_of_one(self._cut, operator, microbatch)
        copied = replace(
            copied,
            name=named(operator.name, microbatch),
            control_inputs=self._after(operator, microbatch),
            copy_of=operator.script_name,
        )
        inputs = [
            self._operand(copied, operator, number, local, microbatch)
            for number in range(len(operator.inputs))
        ]
        self._step.add(replace(copied, inputs=tuple(inputs)))
        return copied.name

    def _after(self, operator: Operator, microbatch: int) -> tuple[str, ...]:
        """The control inputs of a microbatch's operator."""
        indices = self._cut.indices
        needed = [t.operator for t in operator.inputs if t.operator in indices]
        needed += [name for name in operator.control_inputs if name in indices]
        controls = [
            named(name, microbatch) if name in indices else name for name in operator.control_inputs
        ]
        if self.gate and not operator.is_placeholder and self.is_first(operator, needed):
            controls.append(self.gate)
        return tuple(controls)

    def is_first(self, operator: Operator, needed: Collection[str]) -> bool:
        """Whether an operator needs only fed values of its microbatch."""
        del operator
        return all(self._whole[name].is_placeholder for name in needed)

    def _operand(
        self,
        copied: Operator,
        operator: Operator,
        number: int,
        local: dict[int | str, Any],
        microbatch: int,
    ) -> TensorName:
        """The tensor that a microbatch's operator reads as one of its inputs."""
        tensor, spec = operator.inputs[number], copied.input_specs[number]
        dim = self._cut.slices.get((operator.name, number))
        if number in local:
            return self._step.constant(
                f"microbatches/{operator.name}/{number}", spec.value, spec.dtype
            )
        if tensor.operator in self._cut.indices:
            return TensorName(named(tensor.operator, microbatch), tensor.index)
        calls = [
            call
            for call in self._flowing.get((operator.name, number), ())
            if tensor not in self._sparse[call]
        ]
        value = self._whole.spec(tensor).value
        if dim is not None and value is not None and not calls:
            split = np.split(value, self._cut.microbatches, dim)[microbatch]
            place = f"{tensor.operator}_{tensor.index}/along_{dim}"
            return self._step.constant(named(place, microbatch), split, spec.dtype)
        if not calls and dim is None:
            return tensor
        if microbatch == 0:
            boundary = self._boundary(copied, number, tensor, dim, bool(calls))
            self._boundary_of[operator.name, number] = boundary
            self.read_in.setdefault(boundary, set()).update(calls)
        boundary = self._boundary_of[operator.name, number]
        if dim is None:
            return TensorName(boundary, 0)
        part = named(boundary, microbatch)
        if part in self._step.operators:
            return TensorName(part, 0)
        return self.part(part, TensorName(boundary, 0), dim, microbatch, 1.0, boundary)

    def _boundary(
        self, copied: Operator, number: int, tensor: TensorName, dim: int | None, flows: bool
    ) -> str:
        key = tensor, dim, flows, self._alike(copied, number)
        if key not in self._boundaries:
            name = f"boundary_{len(self._boundaries)}/{tensor.operator}"
            spec = self._whole[tensor.operator].value_spec(tensor.index)
            reader = copied.name, number
            self._step.new(BOUNDARY, name, [tensor], [spec], reader=reader, dim=dim)
            self._boundaries[key] = name
            self.origins[name] = tensor
        return self._boundaries[key]

    def part(
        self,
        name: str,
        tensor: TensorName,
        dim: int | None,
        microbatch: int,
        scale: float,
        boundary: str | None,
    ) -> TensorName:
        spec = self._step.spec(tensor)
        spec = spec if dim is None else part_of(spec, dim, self._cut.microbatches)
        return self._step.new(
            PART,
            name,
            [tensor],
            [TensorSpec(spec.shape, spec.dtype)],
            boundary=boundary,
            dim=dim,
            number=microbatch,
            count=self._cut.microbatches,
            scale=scale,
        )
