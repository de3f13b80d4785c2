"""Make all ranks compute the same operators between two collectives.

If an operator does not depend on a collective, nor the collective on the operator, TensorFlow may
run either first, and processes differ. Then one rank waits in the collective for a second rank that
computes first, and later the second waits for the first. Therefore control dependencies keep each
operator between the two collectives between which it was created. Gradients that only updates read
are sent late, as those in buckets are.

A collective across machines runs beside computation. An operator that reads its result does not
hold up a collective that needs none of it. Where all collectives run so, their starts are kept in
place instead. Otherwise TensorFlow may run a small operator of a bucket, which was ready early,
after the whole backward pass: the network waited for 45 of 82 ms of a Transformer's computation.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

import tensorflow as tf

from tensoropt.execution.passes.operation_order import in_order_of_data
from tensoropt.tdl import operator_type

__all__ = ["balance_ranks"]

_TAKE_TIME = ("computes", "calls functions")
"""Roles of operator types that take time."""


def balance_ranks(
    operations: Sequence[tf.Operation],
    run: Iterable[tf.Operation],
    collectives: Sequence[tf.Operation],
    full_bytes: int,
    waits: Collection[tf.Operation] = (),
) -> None:
    """Add control dependencies that keep each operator between the same collectives on all ranks.

    Args:
        operations: the operations of one program, in the order in which they were created.
        run: the operations to run; only the operations that they need are ordered.
        collectives: the collectives, or the operators that start them, in their order; each waits
            for the previous one.
        full_bytes: the size of gradients that only updates read, at which they are sent.
        waits: the operations that wait for collectives beside computation.
    """
    program = _Program.of(operations, run, collectives, waits)
    if not program.collectives:
        return
    segments = _segments(program, _sent_at_once(program, full_bytes))
    _keep_apart(program, segments)
    _wait_for_collectives(program, segments)
    _let_collectives_wait(program, segments)


@dataclass(frozen=True, slots=True, eq=False)
class _Program:
    """The operations of a program that are run.

    Attributes:
        operations: in the order of `in_order_of_data`.
        reads: by operation, the operations that it waits for.
        collectives: the collectives among the operations.
        number: the number of each collective, from 1.
        placed: the operations to put between collectives. An operation that neither needs a
            collective nor is needed by one (a metric) is not placed: if it fails, all collectives
            of the step still run. An operation that needs one of the ``waits`` is placed only if a
            collective needs that one, too.
        awaited: of the ``waits`` that a collective needs, the number of the first such collective.
    """

    operations: Sequence[tf.Operation]
    reads: Mapping[tf.Operation, Sequence[tf.Operation]]
    collectives: Sequence[tf.Operation]
    number: Mapping[tf.Operation, int]
    placed: frozenset[tf.Operation]
    awaited: Mapping[tf.Operation, int]

    @classmethod
    def of(
        cls,
        operations: Sequence[tf.Operation],
        run: Iterable[tf.Operation],
        collectives: Sequence[tf.Operation],
        waits: Collection[tf.Operation],
    ) -> _Program:
        present = set(operations)
        reads: dict[tf.Operation, list[tf.Operation]] = {}
        waiting = [each for each in run if each in present]
        while waiting:
            operation = waiting.pop()
            if operation in reads:
                continue
            all_read = [*(each.op for each in operation.inputs), *operation.control_inputs]
            reads[operation] = [each for each in all_read if each in present]
            waiting += reads[operation]
        needed = [each for each in collectives if each in reads]
        number = {each: position for position, each in enumerate(needed, 1)}
        ordered = in_order_of_data([each for each in operations if each in reads])
        first = _first_that_needs(ordered, reads, number)
        placed = set(needed)
        for operation in reversed(ordered):
            if operation in placed:
                placed.update(reads[operation])
        behind = set(needed)
        for operation in ordered:
            if not behind.isdisjoint(reads[operation]):
                behind.add(operation)
        late = {each for each in waits if each not in first}
        for operation in ordered:
            if not late.isdisjoint(reads[operation]):
                late.add(operation)
        placed = {each for each in placed | behind if _takes_time(each)} - late - set(waits)
        awaited = {each: first[each] for each in waits if each in first}
        return cls(ordered, reads, needed, number, frozenset(placed), awaited)


def _first_that_needs(
    operations: Sequence[tf.Operation],
    reads: Mapping[tf.Operation, Sequence[tf.Operation]],
    number: Mapping[tf.Operation, int],
) -> dict[tf.Operation, int]:
    """Return, by operation, the number of the first collective that needs its result."""
    first: dict[tf.Operation, int] = {}
    for operation in reversed(operations):
        needs_it = number.get(operation, first.get(operation))
        if needs_it is not None:
            for each in _needed_results(operation, reads, number):
                first[each] = min(needs_it, first.get(each, needs_it))
    return first


def _needed_results(
    operation: tf.Operation,
    reads: Mapping[tf.Operation, Sequence[tf.Operation]],
    number: Mapping[tf.Operation, int],
) -> Sequence[tf.Operation]:
    """Return the operations that an operation waits for, less the collective before a collective
    whose result it does not read."""
    if operation not in number:
        return reads[operation]
    turns = set(operation.control_inputs)
    needed = [each for each in reads[operation] if not (each in number and each in turns)]
    return needed + [each.op for each in operation.inputs if each.op in number]


def _sent_at_once(program: _Program, full_bytes: int) -> set[tf.Operation]:
    """Return the collectives that do not wait for later operations.

    They are collectives whose results other collectives need, and those at which the gradients that
    are kept back reach `full_bytes`.
    """
    passed_on: set[tf.Operation] = set()  # operations whose results a collective needs
    for operation in reversed(program.operations):
        if operation not in passed_on and operation not in program.number:
            continue
        passed_on.update(_needed_results(operation, program.reads, program.number))
    sent, kept_back = set(), 0
    for collective in program.collectives:
        kept_back += sum(_bytes(each) for each in collective.inputs)
        if collective in passed_on or kept_back >= full_bytes:
            sent.add(collective)
            kept_back = 0
    return sent


def _segments(program: _Program, sent: set[tf.Operation]) -> dict[tf.Operation, int]:
    """Return by operator the number of the last collective before it; of a collective, its own."""
    segments: dict[tf.Operation, int] = {}
    last, created_after = program.collectives[-1], 0
    for operation in program.operations:
        earliest = max((segments[each] for each in program.reads[operation]), default=0)
        # The collective before may run while the network is at work.
        earliest = max(earliest, program.awaited.get(operation, 0) - 1)
        delayed = created_after if _may_wait(operation) else 0
        segments[operation] = program.number.get(operation, max(earliest, delayed))
        if operation in sent:
            created_after = program.number[operation]
        if operation is last:
            created_after = 0  # Updates follow; each runs as early as possible.
    return segments


def _keep_apart(program: _Program, segments: Mapping[tf.Operation, int]) -> None:
    """Put an identity between operators that oneDNN would fuse across a collective.

    The fused operator and the collective would wait for each other for ever, without an error:
    TensorFlow fuses after we order the operators, and does not look for cycles (seen in 2.18).
    """
    for operation in program.operations:
        fused = _merged_with(operation)
        if any(segments.get(each, segments[operation]) != segments[operation] for each in fused):
            with operation.graph.as_default():
                operation._update_input(0, tf.identity(operation.inputs[0]))


def _merged_with(operation: tf.Operation) -> list[tf.Operation]:
    """The operators that oneDNN may fuse with an operator."""
    if operation.type == "BiasAddGrad":
        readers = operation.inputs[0].consumers()
        return [each for each in readers if each.type == "Conv2DBackpropFilter"]
    read = [tensor.op for tensor in operation.inputs[:1]]
    return [each for each in read if each.type in operator_type(operation.type).fused_after]


def _within_merged(program: _Program) -> set[tf.Operation]:
    """The operations that were created between two operators that oneDNN may fuse.

    If one of them waited for the first operator, and the second operator read its output, the fused
    kernel would wait for itself.
    """
    position = {operation: number for number, operation in enumerate(program.operations)}
    within: set[tf.Operation] = set()
    for operation, number in position.items():
        for fused in _merged_with(operation):
            first, last = sorted((number, position.get(fused, number)))
            within.update(program.operations[first + 1 : last])
    return within


def _wait_for_collectives(program: _Program, segments: Mapping[tf.Operation, int]) -> None:
    """Let operators wait for the last collective before them, or for the operator created before.

    If they waited for the collective alone, TensorFlow's executor would begin with them: with the
    second of two losses, while it still computes the gradients of the first.
    """
    awaited: dict[tf.Operation, int] = {}  # by operation the last collective that it waits for
    within = _within_merged(program)
    created_last: dict[int, tf.Operation] = {}
    for operation in program.operations:
        number = max((awaited[each] for each in program.reads[operation]), default=0)
        number = program.number.get(operation, number)
        if number < segments[operation] and operation in program.placed:
            number = segments[operation]
            before = program.collectives[number - 1]
            if operation not in within:
                before = created_last.get(number, before)
            operation._add_control_inputs([before])
        awaited[operation] = number
        if operation in program.placed and operation not in program.number:
            created_last[number] = operation


def _let_collectives_wait(program: _Program, segments: Mapping[tf.Operation, int]) -> None:
    """Let each collective wait for the operators that come before it."""
    beyond = len(program.collectives) + 1
    needed_by = dict.fromkeys(program.operations, beyond)  # the first collective that needs it
    waits: dict[int, list[tf.Operation]] = {}
    for operation in reversed(program.operations):
        first = program.number.get(operation, needed_by[operation])
        following = segments[operation] + 1
        is_free = operation not in program.number and operation in program.placed
        if following < min(first, beyond) and is_free:
            waits.setdefault(following, []).append(operation)
            first = following
        for each in program.reads[operation]:
            needed_by[each] = min(needed_by[each], first)
    for number, before in waits.items():
        program.collectives[number - 1]._add_control_inputs(before[::-1])


def _takes_time(operation: tf.Operation) -> bool:
    """Whether an operator computes. Those that make variables' handles take no time."""
    holds = any(each.dtype == tf.resource or each.dtype._is_ref_dtype for each in operation.outputs)
    return operator_type(operation.type).role in _TAKE_TIME and not holds


def _may_wait(operation: tf.Operation) -> bool:
    """Whether an operator may run late. A sum must not: it frees the gradients that it adds."""
    return operator_type(operation.type).role in _TAKE_TIME and operation.type != "AddN"


def _bytes(tensor: tf.Tensor) -> int:
    if not tensor.shape.is_fully_defined():
        return 0
    return int(prod(tensor.shape.as_list()) * tensor.dtype.size)
