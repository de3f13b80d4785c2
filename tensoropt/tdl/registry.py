"""The records of all operator types, and the derivations of their descriptions at given shapes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from difflib import get_close_matches
from functools import cache

import numpy as np

from tensoropt.errors import DescriptionError
from tensoropt.tdl.analysis import analyse, replicated
from tensoropt.tdl.any_size import AnySize
from tensoropt.tdl.derivation import Derivation
from tensoropt.tdl.description import (
    CountFlops,
    CountMoved,
    Describe,
    Description,
    InnerCollectives,
    Local,
    PartialOutputs,
    SpelledOut,
)
from tensoropt.tdl.expression import Operand
from tensoropt.tdl.operator_type import OperatorType
from tensoropt.tensor_spec import TensorSpec

__all__ = [
    "Registry",
    "derive",
    "describe",
    "described",
    "find",
    "forget",
    "lookup",
    "moves_rows",
    "operator_type",
    "record",
    "types_with",
]

_UNKNOWN = OperatorType()


class Registry:
    """The records of operator types, with a cache of derivations."""

    __slots__ = ("_cache", "_types")

    def __init__(self) -> None:
        self._types: dict[str, OperatorType] = {}
        self._cache: dict[object, Derivation] = {}

    def record(self, *op_types: str, facts: OperatorType) -> None:
        """Add facts to the records of one or several operator types.

        Args:
            op_types: the types.
            facts: a record in which only these facts differ from the defaults.

        Raises:
            DescriptionError: if a record has one of these facts already.
        """
        names = [each.name for each in fields(facts)]
        stated = {n: getattr(facts, n) for n in names if getattr(facts, n) != getattr(_UNKNOWN, n)}
        for op_type in op_types:
            known = self._types.get(op_type, _UNKNOWN)
            for name in stated:
                if getattr(known, name) != getattr(_UNKNOWN, name):
                    raise _stated_twice(op_type, name, known, facts)
            self._types[op_type] = replace(known, **stated)

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
        """Return a decorator that records a description of one or several operator types.

        The arguments are the attributes of `Description`.

        Raises:
            DescriptionError: by the decorator, if a type has a description already.
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
            self.record(*op_types, facts=OperatorType(description=description))
            return function

        return register

    def forget(self, op_type: str) -> None:
        """Remove the description of an operator type; its other facts stay."""
        self._types[op_type] = replace(self.operator_type(op_type), description=None)
        self._cache = {key: each for key, each in self._cache.items() if each.op_type != op_type}

    def operator_type(self, op_type: str) -> OperatorType:
        """Return the record of an operator type; that of an unknown type has the defaults."""
        return self._types.get(op_type, _UNKNOWN)

    def types_with(self, **facts: object) -> frozenset[str]:
        """Return the operator types whose records have all of these facts."""
        return frozenset(
            op_type
            for op_type, known in self._types.items()
            if all(getattr(known, name) == value for name, value in facts.items())
        )

    def lookup(self, op_type: str) -> Description:
        """Return the description of an operator type.

        Raises:
            DescriptionError: if it has none; lists near names.
        """
        description = self.find(op_type)
        if description is not None:
            return description
        near = get_close_matches(op_type, self.described(), n=3)
        hint = f" Near names: {', '.join(near)}." if near else ""
        raise DescriptionError(
            f"a described operator type is needed. Got {op_type!r}.{hint} Describe it with "
            f'@describe("{op_type}").'
        )

    def find(self, op_type: str) -> Description | None:
        """Return the description of an operator type, None if it has none."""
        return self.operator_type(op_type).description

    def moves_rows(self, op_type: str) -> bool:
        """Whether a piece reads or writes only some rows of its table, see `Description.moved`."""
        description = self.find(op_type)
        return description is not None and description.moved is not None

    def described(self) -> tuple[str, ...]:
        """Return all described operator types, sorted."""
        return tuple(sorted(n for n, each in self._types.items() if each.description is not None))

    def derive(
        self,
        op_type: str,
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
        attributes: Mapping[str, object],
    ) -> Derivation:
        """Return the derivation of an operator at given shapes; cached.

        An operator is replicated if it has no description, or if its description needs a value or
        an extent that is unknown.

        Args:
            op_type: TensorFlow's operator type.
            inputs: specs of the inputs in order, lists of tensors spread out. A variable's ref or
                handle has the variable's shape.
            outputs: specs of the outputs; for an operator that only updates a variable, the spec
                of the variable's new value.
            attributes: TensorFlow's attributes. The description reads the ones that it names.

        Raises:
            DescriptionError: if the description does not fit the operator.
        """
        known = self.operator_type(op_type)
        description = known.description
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
        derivation = self._cache.get(key)
        if derivation is None:
            if any(value is None for value in needed):
                derivation = replicated(op_type, inputs, outputs)
            else:
                derivation = _derive(op_type, description, inputs, outputs, taken, known.linear)
            self._cache[key] = derivation
        return derivation


def _stated_twice(
    op_type: str, name: str, known: OperatorType, facts: OperatorType
) -> DescriptionError:
    if known.description is not None and facts.description is not None:
        return DescriptionError(
            f"an operator type has one description. Got a second one of {op_type} at "
            f"{facts.description.where}; the first is at {known.description.where}. Remove one."
        )
    return DescriptionError(
        f"a fact of an operator type is stated once. Got {name} of {op_type} a second time: "
        f"{getattr(facts, name)!r}, at first {getattr(known, name)!r}. Remove one."
    )


def _derive(
    op_type: str,
    description: Description,
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    attributes: dict[str, object],
    linear: str | None,
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
            linear=linear,
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
record = _REGISTRY.record
operator_type = _REGISTRY.operator_type
types_with = _REGISTRY.types_with
describe = _REGISTRY.describe
find = _REGISTRY.find
forget = _REGISTRY.forget
lookup = _REGISTRY.lookup
moves_rows = _REGISTRY.moves_rows
described = _REGISTRY.described
derive = _REGISTRY.derive
