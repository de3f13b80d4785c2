"""Descriptions by operator type, and what follows from them at given shapes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from typing import Any

import numpy as np

from tensoropt.errors import DescriptionError
from tensoropt.tdl.analysis import analyse, replicated
from tensoropt.tdl.any_size import AnySize
from tensoropt.tdl.derivation import Derivation, InnerCollective
from tensoropt.tdl.expression import Operand
from tensoropt.tensor_spec import TensorSpec

__all__ = [
    "Description",
    "OutputShape",
    "Piece",
    "Registry",
    "derive",
    "describe",
    "described",
    "find",
    "lookup",
    "moves_rows",
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
    """An operator, whole, and the shapes that one device's piece of it has.

    Attributes:
        inputs: the whole inputs, with the values of constants.
        attributes: the graph's.
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
        """The shape of the piece."""
        return {self.operand: piece.local_outputs[0]}


output_shape = OutputShape


@dataclass(frozen=True, slots=True)
class Description:
    """A registered description and what else the emitter must know of the operator.

    Attributes:
        function: from operands (positional) and attributes (keyword-only, TensorFlow's names; the
            name ``outputs`` receives the outputs' specs) to a lambda, a tuple of lambdas with one
            per output (None for an output that the language cannot say), or None where this use
            of the operator is not described.
        constant_operands: inputs whose values the description reads; negative ones count from the
            last.
        mutates: inputs that are variables, updated in place.
        local: what the kernel on a piece must be given instead of the graph's own: by input
            number a constant, by name an attribute. With one, the kernel makes pieces even along
            an index that reads no input.
        spelled_out: indices, by name or by dimension of the first output, that can be split
            though the kernel does not do it: execution has a rule for them. May depend on the
            attributes.
        inner_collectives: what such a rule communicates inside the operator, from the names of
            the split indices, the local input shapes and the local output shapes.
        partial_outputs: from the attributes, outputs that such a rule leaves as partial sums, see
            `tensoropt.tdl.derivation.Index`.
        flops: arithmetic operations, where the description's own count misleads: from the specs of
            inputs and outputs, and from the attributes that both it and ``function`` name.
        moved: elements that a piece reads and writes, where its inputs and outputs mislead: of a
            table only the rows that are looked up. Arguments as of ``inner_collectives``.
        open_shapes: whether dimensions that only a run decides may occur. They are never split;
            any other operator with one runs replicated.
        any_size: whether a split holds whatever the extents are that only a run decides, see
            `tensoropt.tdl.any_size`; None where nothing is said of that.
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
        """Numbers of the constant operands of an operator with so many inputs."""
        numbers = (n + inputs if n < 0 else n for n in self.constant_operands)
        return tuple(n for n in numbers if 0 <= n < inputs)


class Registry:
    """Descriptions by operator type, with a cache of derivations."""

    __slots__ = ("_cache", "_descriptions")

    def __init__(self) -> None:
        self._descriptions: dict[str, Description] = {}
        self._cache: dict[object, Derivation] = {}

    def describe(
        self,
        *op_types: str,
        constant_operands: tuple[int, ...] = (),
        mutates: tuple[int, ...] = (),
        local: Local | None = None,
        spelled_out: SpelledOut | Callable[[Mapping[str, object]], SpelledOut] = (),
        inner_collectives: InnerCollectives | None = None,
        partial_outputs: PartialOutputs = lambda _: (),
        flops: CountFlops | None = None,
        moved: CountMoved | None = None,
        open_shapes: bool = False,
        any_size: AnySize | None = None,
    ) -> Callable[[Describe], Describe]:
        """A decorator that registers a description for one or several operator types.

        Raises:
            DescriptionError: if a type has a description already.
        """

        def register(function: Describe) -> Describe:
            description = Description(
                function,
                constant_operands,
                mutates,
                local,
                spelled_out,
                inner_collectives,
                partial_outputs,
                flops,
                moved,
                open_shapes,
                any_size,
            )
            for op_type in op_types:
                if op_type in self._descriptions:
                    raise DescriptionError(
                        f"an operator type has one description. Got a second one of {op_type} at "
                        f"{description.where}; the first is at "
                        f"{self._descriptions[op_type].where}. Remove one."
                    )
                self._descriptions[op_type] = description
            return function

        return register

    def lookup(self, op_type: str) -> Description:
        """The description of an operator type.

        Raises:
            DescriptionError: if it has none; lists near names.
        """
        try:
            return self._descriptions[op_type]
        except KeyError:
            near = get_close_matches(op_type, self._descriptions, n=3)
            hint = f" Near names: {', '.join(near)}." if near else ""
            raise DescriptionError(
                f"a described operator type is needed. Got {op_type!r}.{hint} Describe it with "
                f'@describe("{op_type}").'
            ) from None

    def find(self, op_type: str) -> Description | None:
        """The description of an operator type, None if it has none."""
        return self._descriptions.get(op_type)

    def moves_rows(self, op_type: str) -> bool:
        """Whether a description says what is moved: rows that are looked up, not their table."""
        description = self.find(op_type)
        return description is not None and description.moved is not None

    def described(self) -> tuple[str, ...]:
        """All described operator types, sorted."""
        return tuple(sorted(self._descriptions))

    def derive(
        self,
        op_type: str,
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
        attributes: Mapping[str, object],
    ) -> Derivation:
        """What an operator's description says at these shapes; cached.

        An operator without a description, or with an unknown value or extent where its description
        needs one, is replicated: correct on every device, split on none.

        Args:
            op_type: TensorFlow's operator type.
            inputs: in the operator's order, lists of tensors spread out. A variable's ref or
                handle has the variable's shape.
            outputs: for an operator that only updates a variable, the variable's new value.
            attributes: TensorFlow's, of which the description takes those it names.

        Raises:
            DescriptionError: if the description does not fit the operator.
        """
        description = self._descriptions.get(op_type)
        unknown = any(-1 in spec.shape for spec in (*inputs, *outputs))
        if description is None or (unknown and not description.open_shapes):
            return replicated(op_type, inputs, outputs)
        needed = [inputs[i].value for i in description.constants(len(inputs))]
        taken = _taken_attributes(op_type, description, attributes)
        key = (
            op_type,
            tuple((spec.shape, spec.dtype) for spec in inputs),
            tuple((spec.shape, spec.dtype) for spec in outputs),
            tuple(None if v is None else (v.dtype.str, v.shape, v.tobytes()) for v in needed),
            _freeze(taken),
        )
        found = self._cache.get(key)
        if found is None:
            if any(value is None for value in needed):
                found = replicated(op_type, inputs, outputs)
            else:
                found = _derive(op_type, description, inputs, outputs, taken)
            self._cache[key] = found
        return found


def _derive(
    op_type: str,
    description: Description,
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    attributes: dict[str, object],
) -> Derivation:
    constants = description.constants(len(inputs))
    operands = [Operand(i, spec, constant=i in constants) for i, spec in enumerate(inputs)]
    if "outputs" in _parameters(description.function):
        attributes = attributes | {"outputs": tuple(outputs)}
    try:
        functions = description.function(*operands, **attributes)
        if functions is None:
            return replicated(op_type, inputs, outputs)
        if not isinstance(functions, tuple):
            functions = (functions,)
        flops = (
            _count(description.flops, inputs, outputs, attributes) if description.flops else None
        )
        return analyse(
            op_type,
            functions,
            inputs,
            outputs,
            description.spelled_out_by(attributes),
            flops,
            shaped=description.local is not None,
            partial_outputs=description.partial_outputs(attributes),
        )
    except DescriptionError as error:
        shapes = ", ".join(str(spec.shape) for spec in inputs)
        raise DescriptionError(
            f"{error} (Describing {op_type} of {shapes}, at {description.where}.)"
        ) from error


def _count(
    flops: CountFlops,
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    attributes: Mapping[str, object],
) -> int:
    named = {name for name, _ in _named_attributes(flops)} & set(attributes)
    return int(flops(inputs, outputs, **{name: attributes[name] for name in named}))


def _taken_attributes(
    op_type: str, description: Description, attributes: Mapping[str, object]
) -> dict[str, object]:
    """The attributes that the description names; byte strings as text, arrays as tuples."""
    taken: dict[str, object] = {}
    for name, needed in _named_attributes(description.function):
        if name in attributes:
            taken[name] = _plain(attributes[name])
        elif needed:
            raise DescriptionError(
                f"the description of {op_type} needs the attribute {name}. Got "
                f"{', '.join(sorted(attributes)) or 'none'}."
            )
    return taken


@cache
def _parameters(function: Describe) -> Mapping[str, inspect.Parameter]:
    """The parameters of a description."""
    return inspect.signature(function).parameters


@cache
def _named_attributes(function: Describe) -> tuple[tuple[str, bool], ...]:
    """The attributes that a description names, and whether it needs them."""
    return tuple(
        (parameter.name, parameter.default is inspect.Parameter.empty)
        for parameter in _parameters(function).values()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and parameter.name != "outputs"
    )


def _plain(value: object) -> object:
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, (list, tuple)):
        return tuple(map(_plain, value))
    return value


def _freeze(attributes: Mapping[str, object]) -> object:
    return tuple(sorted((name, repr(value)) for name, value in attributes.items()))


_REGISTRY = Registry()
describe = _REGISTRY.describe
find = _REGISTRY.find
lookup = _REGISTRY.lookup
moves_rows = _REGISTRY.moves_rows
described = _REGISTRY.described
derive = _REGISTRY.derive
