"""A symbolic run of a description: its indices with their extents, and its reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from tensoropt.errors import DescriptionError
from tensoropt.tdl.expression import (
    Arithmetic,
    Call,
    Element,
    Expression,
    IndexVariable,
    Literal,
    OpaqueValue,
    Reduction,
    lift,
    parameters,
)
from tensoropt.tdl.interval import Interval

__all__ = ["Access", "Trace", "subscript_interval", "trace", "variables"]


@dataclass(frozen=True, slots=True)
class Access:
    """An element or slice that the description reads.

    Attributes:
        element: the element or slice.
        opaque: name of the opaque function that it is an argument of, or "".
        mentions: per subscript, the names of its indices.
    """

    element: Element
    opaque: str
    mentions: tuple[frozenset[str], ...]

    @property
    def input(self) -> int:
        """Number of the input that is read."""
        return self.element.operand.position


@dataclass(slots=True)
class Trace:
    """The indices and accesses of one symbolic run.

    Attributes:
        extents: the extent of every index, output indices in order, then reduction indices.
        outputs: index names per output; None for an output without a description.
        bodies: the element of each output.
        reductions: reducer of every reduction index.
        accesses: every read, in order.
        valued: indices that are used as a value, not only as a subscript.
        opaque: per index that subscripts an opaque function's result, the name of the function.
        given: reduction indices whose extent is stated by the description: an attribute of the
            kernel.
        ranges: the whole range of every index.
    """

    extents: dict[str, int] = field(default_factory=dict)
    outputs: list[tuple[str, ...] | None] = field(default_factory=list)
    bodies: list[Expression | None] = field(default_factory=list)
    reductions: dict[str, str] = field(default_factory=dict)
    accesses: list[Access] = field(default_factory=list)
    valued: set[str] = field(default_factory=set)
    opaque: dict[str, str] = field(default_factory=dict)
    given: set[str] = field(default_factory=set)
    ranges: dict[str, Interval] = field(default_factory=dict)

    @property
    def maxima(self) -> tuple[int, ...]:
        """Inclusive maximum of every index, the value of its symbol."""
        return tuple(extent - 1 for extent in self.extents.values())

    def set_ranges(self) -> None:
        """Set the whole range of every index, once all indices are known."""
        count = len(self.extents)
        self.ranges = {name: Interval.whole(count, n) for n, name in enumerate(self.extents)}


def trace(
    functions: Sequence[Callable[..., Any] | None], output_shapes: Sequence[tuple[int, ...]]
) -> Trace:
    """Run the outputs' lambdas on symbolic indices.

    Raises:
        DescriptionError: if the lambdas and the shapes disagree, an extent is not determined, or
            an element outside an operand is read.
    """
    if len(functions) != len(output_shapes):
        raise DescriptionError(
            f"a description gives one lambda per output. Got {len(functions)} for "
            f"{len(output_shapes)} outputs."
        )
    run = Trace()
    given: dict[str, int | None] = {}
    for function, shape in zip(functions, output_shapes, strict=True):
        if function is None:
            run.outputs.append(None)
            run.bodies.append(None)
            continue
        names = parameters(function, len(shape))
        for name, extent in zip(names, shape, strict=True):
            if run.extents.setdefault(name, extent) != extent:
                raise DescriptionError(
                    f"an index has one extent in all outputs. Got {run.extents[name]} and "
                    f"{extent} for {name}."
                )
        run.outputs.append(names)
        run.bodies.append(lift(function(*map(IndexVariable, names))))
    for body in run.bodies:
        if body is not None:
            _visit(body, run, given, "")
    run.given.update(name for name, extent in given.items() if extent is not None)
    _infer_extents(run, given)
    run.set_ranges()
    _check_bounds(run)
    return run


def variables(expression: Expression) -> Iterator[str]:
    """Yield the names of all indices in an expression, those of its reductions included."""
    if isinstance(expression, IndexVariable):
        yield expression.name
    for child in _children(expression):
        yield from variables(child)
    if isinstance(expression, Reduction):
        yield from (index.name for index in expression.indices)


def _mentioned(part: Expression | None) -> frozenset[str]:
    return frozenset() if part is None else frozenset(variables(part))


def _children(expression: Expression) -> tuple[Expression, ...]:
    match expression:
        case Arithmetic(left=left, right=right):
            return (left, right)
        case Call(arguments=arguments):
            return arguments
        case OpaqueValue(arguments=arguments, subscripts=subscripts):
            return arguments + subscripts
        case Element(subscripts=parts):
            return tuple(part for part in parts if part is not None)
        case Reduction(body=body):
            return (body,)
    return ()


def _visit(expression: Expression, run: Trace, given: dict[str, int | None], opaque: str) -> None:
    match expression:
        case IndexVariable(name=name):
            run.valued.add(name)
        case Element(subscripts=parts):
            if None in parts and not opaque:
                raise DescriptionError(
                    f"only an opaque function takes a slice of a tensor. Got one of input "
                    f"{expression.operand.position}. Reduce over an index of its own instead."
                )
            mentions = tuple(_mentioned(part) for part in parts)
            run.accesses.append(Access(expression, opaque, mentions))
        case OpaqueValue(function=function, arguments=arguments, subscripts=subscripts):
            for part in subscripts:
                run.opaque.update(dict.fromkeys(variables(part), function))
            for argument in arguments:
                _visit(argument, run, given, function)
        case Reduction(reducer=reducer, indices=indices, body=body):
            for index in indices:
                if index.name in run.extents:
                    raise DescriptionError(
                        f"a reduction names indices of its own. Got {index.name}, which is an "
                        f"output index too."
                    )
                run.reductions.setdefault(index.name, reducer)
                given[index.name] = given.get(index.name) or index.extent
            _visit(body, run, given, opaque)
        case _:
            for child in _children(expression):
                _visit(child, run, given, opaque)


def _infer_extents(run: Trace, given: Mapping[str, int | None]) -> None:
    """Set the extents of the reduction indices.

    An extent is stated, or is that of a dimension that the index subscripts, or is solved for.
    """
    known = dict(run.extents)
    known |= {name: extent for name, extent in given.items() if extent is not None}
    for access in run.accesses:
        for part, size in zip(access.element.subscripts, access.element.operand.shape, strict=True):
            if not isinstance(part, IndexVariable) or part.name not in run.reductions:
                continue
            if known.setdefault(part.name, size) != size and not access.element.padded:
                raise DescriptionError(
                    f"a reduction index runs over whole dimensions of one size. Got {part.name} "
                    f"of extent {known[part.name]} on input {access.input} of shape "
                    f"{access.element.operand.shape}."
                )
    while missing := [name for name in run.reductions if name not in known]:
        solved = _solve(run, known, missing)
        if solved is None:
            raise DescriptionError(
                f"the extent of a reduction index follows from the inputs that it subscripts. Got "
                f"none for {', '.join(missing)}. Give it: Sum(lambda k: ..., k=extent)."
            )
        known[solved[0]] = solved[1]
    run.extents |= {name: known[name] for name in run.reductions}


def _solve(run: Trace, known: Mapping[str, int], missing: Sequence[str]) -> tuple[str, int] | None:
    """Solve ``largest subscript = size - 1`` of an affine subscript with one unknown extent."""
    names = [*known, *missing]
    ranges = {name: Interval.whole(len(names), n) for n, name in enumerate(names)}
    for access in run.accesses:
        sizes = access.element.operand.shape
        for part, size, mentions in zip(
            access.element.subscripts, sizes, access.mentions, strict=True
        ):
            unknown = mentions & set(missing)
            if part is None or len(unknown) != 1 or access.element.padded or not _is_affine(part):
                continue
            (name,) = unknown
            interval = subscript_interval(part, ranges, ranges, [0] * len(names))
            rate = interval.upper[names.index(name)]
            others = [known.get(n, 1) - 1 for n in names]
            rest = Fraction(size - 1) - interval.at(others)[1]
            if rate > 0 and (rest / rate).denominator == 1 and rest >= 0:
                return name, int(rest / rate) + 1
    return None


def _is_affine(expression: Expression) -> bool:
    if isinstance(expression, Arithmetic) and expression.sign in ("//", "%"):
        return False
    return all(map(_is_affine, _children(expression)))


def _check_bounds(run: Trace) -> None:
    ranges, maxima = run.ranges, run.maxima
    if any(maximum < 0 for maximum in maxima):
        return
    for access in run.accesses:
        if access.element.padded:
            continue
        sizes = access.element.operand.shape
        for dim, (part, size) in enumerate(zip(access.element.subscripts, sizes, strict=True)):
            if part is None:
                continue
            if isinstance(part, IndexVariable) and run.extents.get(part.name, size + 1) <= size:
                continue
            low, high = subscript_interval(part, ranges, ranges, maxima).at(maxima)
            if low < 0 or high > size - 1:
                raise DescriptionError(
                    f"elements are read inside the operand, or of its padded form. Got {low} to "
                    f"{high} in dimension {dim} of input {access.input}, shape {sizes}."
                )


def subscript_interval(
    expression: Expression,
    ranges: Mapping[str, Interval],
    whole: Mapping[str, Interval],
    maxima: Sequence[int],
) -> Interval:
    """The range of a subscript while the indices have ``ranges`` (Figure 4).

    Args:
        expression: the subscript.
        ranges: interval of every index in this run.
        whole: interval of every index if nothing is split. It tells whether // and % divide by
            more than the whole range.
        maxima: inclusive maximum of every index.

    Raises:
        DescriptionError: for products and comparisons of indices, and for elements of tensors
            (data-dependent indexing), which have no interval.
    """
    match expression:
        case IndexVariable(name=name):
            if name not in ranges:
                raise DescriptionError(
                    f"an index is used inside its own lambda. Got {name}, bound by no lambda here."
                )
            return ranges[name]
        case Literal(value=value):
            number = value if isinstance(value, int) else Fraction(value)
            return Interval.constant(len(maxima), number)
        case Arithmetic(sign=sign, left=left, right=right):
            a = subscript_interval(left, ranges, whole, maxima)
            b = subscript_interval(right, ranges, whole, maxima)
            match sign:
                case "+":
                    return a + b
                case "-":
                    return a - b
                case "*":
                    return a * b
                case "/":
                    return a / b
                case "//" | "%":
                    low, high = subscript_interval(left, whole, whole, maxima).at(maxima)
                    if b.is_constant and low >= 0 and high < b.low:
                        return a if sign == "%" else Interval.constant(len(maxima), 0)
                    return a // b if sign == "//" else a % b
            a.compare(sign, b)
    raise DescriptionError(
        f"a subscript is made of indices and numbers. Got {type(expression).__name__}: an "
        f"element's place that depends on data is beyond intervals; make it opaque."
    )
