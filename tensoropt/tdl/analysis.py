"""The splits of an operator that its description allows (Tofu, section 4.2).

For each index there are two symbolic runs: the index takes the first half of its range, or the
second half; all other indices take their whole range. Each run gives the range of every subscript.
Splitting an output index is the paper's case 1; splitting a reduction index is case 2, whose
results are then reduced. An index can be split if both runs read exact halves of one dimension of
an input, or ranges that do not depend on the index. If the halves overlap, the overlap is a halo.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil, prod
from typing import Any

from tensoropt.tdl.derivation import Derivation, Halo, Index
from tensoropt.tdl.expression import (
    Arithmetic,
    Call,
    Element,
    Expression,
    IndexVariable,
    OpaqueValue,
    Reduction,
)
from tensoropt.tdl.interval import Interval
from tensoropt.tdl.operator_type import linear_inputs
from tensoropt.tdl.trace import Access, Trace, subscript_interval, trace, variables
from tensoropt.tensor_spec import TensorSpec

__all__ = ["analyse", "replicated", "source"]


def analyse(
    op_type: str,
    functions: Sequence[Callable[..., Any] | None],
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    spelled_out: Sequence[str | int] = (),
    flops: int | None = None,
    *,
    shaped: bool = False,
    partial_outputs: Sequence[int] = (),
    linear: str | None = None,
) -> Derivation:
    """Derive an operator's splits from its outputs' lambdas, made with `Operand` inputs.

    O(indices · accesses · rank) interval evaluations.

    Args:
        op_type: TensorFlow's operator type.
        functions: a lambda per output, None for an output that is not described.
        inputs: specs of the inputs.
        outputs: specs of the outputs.
        spelled_out: indices, by name or by dimension of the first output, that a rule of the
            execution splits. For them only accesses that mention the index count; the rule brings
            all other elements. If windows (reads of a padded operand) do not overlap, the kernel
            runs on a piece, and no rule is needed.
        flops: arithmetic operations, if the description's own count misleads.
        shaped: whether the kernel is given its output's shape. Then an index that reads no input
            can be split as well.
        partial_outputs: outputs that the rule of a spelled-out index leaves as partial sums, if
            they do not have this index.
        linear: `OperatorType.linear` of the type.

    Raises:
        DescriptionError: if the description does not fit the shapes.
    """
    run = trace(functions, [spec.shape for spec in outputs])
    spelled = {_index_name(run, index) for index in spelled_out}
    splits = [
        _spelled_out_split(run, name, shaped) if name in spelled else _split(run, name, shaped)
        for name in run.extents
    ]
    number = {name: n for n, name in enumerate(run.extents)}
    owner = {place: n for n, split in enumerate(splits) if not split.reason for place in split.dims}
    indices = tuple(
        Index(
            name,
            extent,
            run.reductions.get(name),
            not split.reason,
            split.reason,
            split.averaged,
            split.spelled_out and not split.reason,
            _partial(run, name, partial_outputs) if split.spelled_out and not split.reason else (),
        )
        for (name, extent), split in zip(run.extents.items(), splits, strict=True)
    )

    def output_dims(names: tuple[str, ...] | None, rank: int) -> tuple[int | None, ...]:
        if names is None:
            return (None,) * rank
        return tuple(number[name] if indices[number[name]].splittable else None for name in names)

    return Derivation(
        op_type,
        indices,
        tuple(
            tuple(owner.get((i, d)) for d in range(len(spec.shape)))
            for i, spec in enumerate(inputs)
        ),
        tuple(
            output_dims(names, len(spec.shape))
            for names, spec in zip(run.outputs, outputs, strict=True)
        ),
        tuple(spec.shape for spec in inputs),
        tuple(spec.shape for spec in outputs),
        tuple(
            Halo(n, i, d, before, after)
            for n, split in enumerate(splits)
            for (i, d), (before, after) in split.halos.items()
            if before or after
        ),
        _flops(run) if flops is None else flops,
        linear_inputs(linear, inputs, outputs),
    )


def replicated(
    op_type: str, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]
) -> Derivation:
    """Return the derivation of an operator without a description: every device computes it whole.

    Its ``flops`` are estimated as one operation per output element.
    """
    return Derivation(
        op_type,
        (),
        tuple((None,) * len(spec.shape) for spec in inputs),
        tuple((None,) * len(spec.shape) for spec in outputs),
        tuple(spec.shape for spec in inputs),
        tuple(spec.shape for spec in outputs),
        flops=sum(spec.elements for spec in outputs),
    )


def source(op_type: str, shape: Sequence[int]) -> Derivation:
    """Return the derivation of a variable or placeholder, whose output can be split everywhere."""
    indices = tuple(
        Index(f"i{n}", extent, None, extent > 1, "" if extent > 1 else f"extent {extent}")
        for n, extent in enumerate(shape)
    )
    dims = tuple(n if index.splittable else None for n, index in enumerate(indices))
    return Derivation(op_type, indices, (), (dims,), (), (tuple(shape),))


@dataclass(slots=True)
class _Split:
    """The dimensions and halos that go with the halves of an index, or why it cannot be split."""

    dims: set[tuple[int, int]] = field(default_factory=set)
    halos: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    reason: str = ""
    averaged: bool = False
    spelled_out: bool = False


def _split(run: Trace, name: str, shaped: bool) -> _Split:
    split = _Split()
    if run.extents[name] < 2:
        split.reason = _too_small(run.extents[name])
        return split
    problems = [_place_in_outputs(run, name, split)]
    if name in run.valued:
        problems.append("its value is used, not only as a subscript")
    problems.append(_read(run, name, split, shaped))
    split.reason = next(filter(None, problems), "")
    return split


def _too_small(extent: int) -> str:
    return f"extent {extent}" if extent >= 0 else "extent not known before it runs"


def _partial(run: Trace, name: str, partial_outputs: Sequence[int]) -> tuple[int, ...]:
    return tuple(o for o in partial_outputs if name not in (run.outputs[o] or ()))


def _index_name(run: Trace, index: str | int) -> str:
    names = run.outputs[0]
    return names[index] if isinstance(index, int) and names else str(index)


def _spelled_out_split(run: Trace, name: str, shaped: bool) -> _Split:
    """The split of an index that a rule of the execution can split if the kernel cannot."""
    windows = _windows(run, name)
    if windows or run.extents[name] < 2:
        split = _split(run, name, shaped)
        if not split.reason or run.extents[name] < 2:
            return split
    split = _Split(halos=windows, spelled_out=True)
    split.dims.update(windows)
    _read(run, name, split, shaped)
    if not split.dims and not shaped:
        split.reason = "no input falls into pieces of it"
    return split


def _windows(run: Trace, name: str) -> dict[tuple[int, int], tuple[int, int]]:
    """The input dimensions over which windows slide with an index, with the halo on either side."""
    found: dict[tuple[int, int], tuple[int, int]] = {}
    halves = _runs(run, name)
    for access in run.accesses:
        for dim, (part, mentions) in enumerate(
            zip(access.element.subscripts, access.mentions, strict=True)
        ):
            if part is None or not access.element.padded or name not in mentions:
                continue
            reach = _reach(part, halves, run.maxima)
            if reach is not None:
                old = found.get((access.input, dim), (0, 0))
                found[access.input, dim] = max(old[0], reach[0]), max(old[1], reach[1])
    return found


def _place_in_outputs(run: Trace, name: str, split: _Split) -> str:
    """Return why the outputs do not fall into pieces of the index, else "".

    Sets ``split.averaged``.
    """
    if name in run.opaque:
        return f"read whole by opaque {run.opaque[name]}"
    if name in run.given:
        return "the kernel is told its extent"
    forms = set()
    for o, (names, body) in enumerate(zip(run.outputs, run.bodies, strict=True)):
        if names is None or body is None:
            return f"output {o} is not described"
        if name not in run.reductions:
            continue  # an output without the index is whole in every piece
        form = _reduced_by(body, name)
        if form is None:
            return f"not the outermost reduction of output {o}"
        forms.add(form)
    if len(forms) > 1:
        return "reduced in several ways"
    split.averaged = any(averaged for _, averaged in forms)
    return ""


def _reduced_by(expression: Expression, name: str) -> tuple[str, bool] | None:
    """Return the reducer that merges the values of ``expression`` on pieces of an index, and
    whether the reduction is averaged.

    None if the index is not reduced, or if the result of its reduction enters an operation that
    does not commute with the reduction.
    """
    match expression:
        case Reduction(reducer=reducer, indices=indices, body=body, averaged=averaged):
            if any(index.name == name for index in indices):
                return reducer, averaged
            inner = _reduced_by(body, name)
            return inner if inner and inner[0] == reducer else None
        case Arithmetic(sign="+" | "-", left=left, right=right):
            forms = {_reduced_by(left, name), _reduced_by(right, name)}
            form = forms.pop()
            return form if not forms and form and form[0] == "sum" else None
        case Arithmetic(sign="*" | "/" as sign, left=left, right=right):
            if sign == "*" and name in variables(right):
                left, right = right, left
            form = _reduced_by(left, name)
            linear = form is not None and form[0] == "sum" and name not in variables(right)
            return form if linear else None
    return None


def _read(run: Trace, name: str, split: _Split, shaped: bool = False) -> str:
    """Return why the inputs do not fall into pieces of the index, else "".

    Adds to ``split.dims`` and ``split.halos``.
    """
    reasons: list[str] = []
    whole: dict[tuple[int, int], str] = {}
    halves = _runs(run, name)
    for access in run.accesses:
        for dim, mentions in enumerate(access.mentions):
            place = access.input, dim
            found = _relation(run, access, dim, halves) if name in mentions else None
            if found is None:
                whole[place] = access.opaque or whole.get(place, "")
            elif found == (0, 0):
                split.dims.add(place)
            elif isinstance(found, str):
                reasons.append(f"{found} input {access.input} dimension {dim}")
            else:
                old = split.halos.get(place, (0, 0))
                split.halos[place] = max(old[0], found[0]), max(old[1], found[1])
    for (i, d), (before, after) in split.halos.items():
        reasons.append(f"halo of {before + after} on input {i} dimension {d}")
    for i, d in sorted(split.dims & set(whole)):
        function = whole[i, d]
        reasons.append(
            f"read whole by opaque {function}"
            if function
            else f"input {i} dimension {d} is also read by other indices"
        )
    seen: dict[int, int] = {}
    for i, d in sorted(split.dims):
        if i in seen:
            reasons.append(f"subscripts dimensions {seen[i]} and {d} of input {i}")
        seen[i] = d
    if not split.dims and not reasons and not shaped:
        reasons.append("indexes no input")
    return reasons[0] if reasons else ""


_Runs = tuple[dict[str, Interval], dict[str, Interval], dict[str, Interval], int]


def _runs(run: Trace, name: str) -> _Runs:
    """Return the ranges of all indices in the whole, first-half and second-half run, and the number
    of the index."""
    whole = run.ranges
    n, count = list(run.extents).index(name), len(run.extents)
    first = whole | {name: Interval.first_half(count, n)}
    second = whole | {name: Interval.second_half(count, n)}
    return whole, first, second, n


def _relation(run: Trace, access: Access, dim: int, runs: _Runs) -> str | tuple[int, int] | None:
    """How halves of an index read one dimension of an input.

    Returns:
        None if both halves read the whole range; (0, 0) if they read exact halves;
        (before, after) if each also reads these numbers of elements of its neighbours' halves;
        else the beginning of a reason.
    """
    part = access.element.subscripts[dim]
    if part is None:
        return None
    whole, first, second, n = runs
    maxima = run.maxima
    size = access.element.operand.shape[dim]
    if isinstance(part, IndexVariable) and maxima[n] + 1 == size:
        return 0, 0
    symbolic = subscript_interval(part, whole, whole, maxima)
    all_low, all_high = symbolic.at(maxima)
    low1, high1 = subscript_interval(part, first, whole, maxima).at(maxima)
    low2, high2 = subscript_interval(part, second, whole, maxima).at(maxima)
    if (low1, high1) == (low2, high2) == (all_low, all_high):
        return None
    half = Fraction(size, 2)
    if (low1, high1, low2, high2) == (0, half - 1, half, size - 1):
        return 0, 0
    reach = _reach(part, runs, maxima)
    if reach is None:
        return "runs backwards over"
    stride, extent = symbolic.upper[n], maxima[n] + 1
    span = all_high - all_low - stride * maxima[n]
    if span < stride * extent and any(reach):
        return reach
    return "its halves overlap in" if span >= stride * extent else "takes uneven parts of"


def _reach(part: Expression, runs: _Runs, maxima: tuple[int, ...]) -> tuple[int, int] | None:
    """Return how many elements a subscript reads before and after the pieces of an index.

    None if it runs backwards.
    """
    whole, first, second, n = runs
    symbolic = subscript_interval(part, whole, whole, maxima)
    if symbolic.lower[n]:
        return None
    _, high1 = subscript_interval(part, first, whole, maxima).at(maxima)
    low2, _ = subscript_interval(part, second, whole, maxima).at(maxima)
    piece_end = Fraction(symbolic.upper[n] * (maxima[n] + 1), 2)
    return max(0, ceil(piece_end - low2)), max(0, ceil(high1 - piece_end + 1))


def _flops(run: Trace) -> int:
    total = 0
    for names, body in zip(run.outputs, run.bodies, strict=True):
        if names is not None and body is not None:
            total += _operations(body, prod(run.extents[name] for name in names), run)
    return total


def _operations(expression: Expression, points: int, run: Trace) -> int:
    match expression:
        case Arithmetic(left=left, right=right):
            return points + _operations(left, points, run) + _operations(right, points, run)
        case Call(arguments=arguments, operations=operations):
            below = sum(_operations(argument, points, run) for argument in arguments)
            return points * operations + below
        case Reduction(indices=indices, body=body, averaged=averaged):
            inner = points * prod(run.extents[index.name] for index in indices)
            return inner + _operations(body, inner, run) + (points if averaged else 0)
        case OpaqueValue(arguments=arguments):
            return sum(_elements_read(argument, run) for argument in arguments)
    return 0


def _elements_read(expression: Expression, run: Trace) -> int:
    """Return the operations of an opaque function: one per element of each slice that it reads."""
    if not isinstance(expression, Element):
        return 0
    mentioned = {
        name for part in expression.subscripts if part is not None for name in variables(part)
    }
    slices = prod(run.extents[name] for name in mentioned)
    sizes = zip(expression.subscripts, expression.operand.shape, strict=True)
    return slices * prod(size for part, size in sizes if part is None)
