"""The record of an operator type's description."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tensoropt.tdl.any_size import AnySize
from tensoropt.tdl.derivation import InnerCollective
from tensoropt.tensor_spec import TensorSpec

__all__ = [
    "CountFlops",
    "CountMoved",
    "Describe",
    "Description",
    "InnerCollectives",
    "Local",
    "OutputShape",
    "PartialOutputs",
    "Piece",
    "SpelledOut",
    "output_shape",
]

Describe = Callable[..., Any]
Shapes = Sequence[tuple[int, ...]]
InnerCollectives = Callable[[frozenset[str], Shapes, Shapes], Sequence[InnerCollective]]
SpelledOut = tuple[str | int, ...]
PartialOutputs = Callable[[Mapping[str, object]], tuple[int, ...]]
CountFlops = Callable[..., int]
CountMoved = Callable[[frozenset[str], Shapes, Shapes], int]


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """An operator, and the shapes of one device's piece of it.

    Attributes:
        inputs: the whole inputs, with the values of constants.
        attributes: the operator's attributes in the graph.
        local_inputs: the inputs' shapes on a device.
        local_outputs: the outputs' shapes on a device.
    """

    inputs: Sequence[TensorSpec]
    attributes: Mapping[str, object]
    local_inputs: tuple[tuple[int, ...], ...]
    local_outputs: tuple[tuple[int, ...], ...]


Local = Callable[[Piece], Mapping[int | str, object]]


@dataclass(frozen=True, slots=True)
class OutputShape:
    """The `Description.local` of an operator with an operand that is its first output's shape.

    Attributes:
        operand: number of that input.
    """

    operand: int

    def __call__(self, piece: Piece) -> Mapping[int | str, object]:
        """Return the shape of the piece, for the operand."""
        return {self.operand: piece.local_outputs[0]}


output_shape = OutputShape


@dataclass(frozen=True, slots=True)
class Description:
    """A description, and how the emitter runs the operator's kernel on a piece.

    Attributes:
        function: from operands (positional) and attributes (keyword-only, with TensorFlow's names;
            the name ``outputs`` receives the outputs' specs) to a lambda, or to a tuple of one
            lambda per output. None in place of a lambda: the language cannot express this output.
            None in place of all: this use of the operator is not described.
        constant_operands: inputs whose values the description reads; negative numbers count from
            the last input.
        mutates: inputs that are variables, updated in place.
        local: the changed arguments of the kernel on a piece: by input number a constant, by name
            an attribute. With `local`, the kernel makes pieces even along an index that reads no
            input.
        spelled_out: indices, by name or by dimension of the first output, that a rule of the
            execution splits, since the kernel cannot. May depend on the attributes.
        inner_collectives: the collectives of the rule, from the names of the split indices, the
            local input shapes and the local output shapes.
        partial_outputs: from the attributes, the outputs that the rule leaves as partial sums, see
            `tensoropt.tdl.derivation.Index`.
        flops: arithmetic operations, if the description's own count misleads: from the specs of
            inputs and outputs, and from the attributes that both it and ``function`` name.
        moved: elements that a piece reads and writes, if they are not all elements of its inputs
            and outputs: a lookup reads only some rows of a table. Arguments as of
            ``inner_collectives``.
        open_shapes: whether inputs and outputs may have extents that are known only in a run.
            Their dimensions are never split. An operator without it is then replicated.
        any_size: tells whether a split is valid for all values of extents that are known only in
            a run, see `tensoropt.tdl.any_size`; None if that is not known.
    """

    function: Describe
    constant_operands: tuple[int, ...] = ()
    mutates: tuple[int, ...] = ()
    local: Local | None = None
    spelled_out: SpelledOut | Callable[[Mapping[str, object]], SpelledOut] = ()
    inner_collectives: InnerCollectives | None = None
    partial_outputs: PartialOutputs = lambda _: ()
    flops: CountFlops | None = None
    moved: CountMoved | None = None
    open_shapes: bool = False
    any_size: AnySize | None = None

    def spelled_out_by(self, attributes: Mapping[str, object]) -> SpelledOut:
        """The spelled-out indices of an operator with these attributes."""
        return self.spelled_out(attributes) if callable(self.spelled_out) else self.spelled_out

    @property
    def where(self) -> str:
        """File and line of the description."""
        code = inspect.unwrap(self.function).__code__
        return f"{code.co_filename}:{code.co_firstlineno}"

    def constants(self, inputs: int) -> tuple[int, ...]:
        """Numbers of the constant operands of an operator with this number of inputs."""
        numbers = (n + inputs if n < 0 else n for n in self.constant_operands)
        return tuple(n for n in numbers if 0 <= n < inputs)
