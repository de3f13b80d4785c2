"""Make all ranks compute the same operators between two collectives.

For ranks that wait in collectives. An operator that does not depend on a collective, and on which
no collective depends, may run before it or after it, as TensorFlow likes, and processes differ.
Then one rank waits for a second that computes first, and later the second for the first. So each
operator gets control dependencies that keep it between the collectives between which it was made.
Gradients that only updates read are sent late, as those in buckets are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

import tensorflow as tf

from tensoropt.execution.passes.operation_order import in_order_of_data
from tensoropt.tdl import operator_type

__all__ = ["balance_ranks"]

_TAKE_TIME = ("computes", "calls functions")


def balance_ranks(
    operations: Sequence[tf.Operation],
    run: Iterable[tf.Operation],
    collectives: Sequence[tf.Operation],
    full_bytes: int,
) -> None:
    """Add control dependencies, so that each operator is between the same collectives everywhere.

    Args:
        operations: of one program, in the order in which they were made.
        run: the operations to run; only the operations that they need are ordered.
        collectives: in their order, each waiting for the one before.
        full_bytes: bytes of gradients that only updates read. Once so many are kept back, they are
            sent.
    """
    program = _Program.of(operations, run, collectives)
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
        operations: in the order in which they were made. It respects the order of the data, since
            inputs of loops are moved before the loops.
        reads: by operation the operations that it waits for.
        collectives: the collectives among them.
        number: the number of each collective, from 1.
        placed: the operations to put between collectives. An operation that neither needs a
            collective nor is needed by one (a metric) is not placed: should it fail, all
            collectives of the step still run.
    """

    operations: Sequence[tf.Operation]
    reads: Mapping[tf.Operation, Sequence[tf.Operation]]
    collectives: Sequence[tf.Operation]
    number: Mapping[tf.Operation, int]
    placed: frozenset[tf.Operation]

    @classmethod
    def of(
        cls,
        operations: Sequence[tf.Operation],
        run: Iterable[tf.Operation],
        collectives: Sequence[tf.Operation],
    ) -> _Program:
        made = set(operations)
        reads: dict[tf.Operation, list[tf.Operation]] = {}
        waiting = [each for each in run if each in made]
        while waiting:
            operation = waiting.pop()
            if operation in reads:
                continue
            all_read = [*(each.op for each in operation.inputs), *operation.control_inputs]
            reads[operation] = [each for each in all_read if each in made]
            waiting += reads[operation]
        needed = [each for each in collectives if each in reads]
        number = {each: position for position, each in enumerate(needed, 1)}
        ordered = in_order_of_data([each for each in operations if each in reads])
        placed = set(needed)
        for operation in reversed(ordered):
            if operation in placed:
                placed.update(reads[operation])
        behind = set(needed)
        for operation in ordered:
            if not behind.isdisjoint(reads[operation]):
                behind.add(operation)
        placed = {each for each in placed | behind if _takes_time(each)}
        return cls(ordered, reads, needed, number, frozenset(placed))


def _sent_at_once(program: _Program, full_bytes: int) -> set[tf.Operation]:
    """Collectives that do not wait for later operations: other collectives need their results, or
    the gradients that are kept back have become too many."""
    passed_on: set[tf.Operation] = set()  # a collective needs their results, not only its turn
    for operation in reversed(program.operations):
        if operation not in passed_on and operation not in program.number:
            continue
        found = program.reads[operation]
        if operation in program.number:
            turns = set(operation.control_inputs)
            found = [each for each in found if not (each in program.number and each in turns)]
            found += [each.op for each in operation.inputs if each.op in program.number]
        passed_on.update(found)
    sent, kept_back = set(), 0
    for collective in program.collectives:
        kept_back += sum(_bytes(each) for each in collective.inputs)
        if collective in passed_on or kept_back >= full_bytes:
            sent.add(collective)
            kept_back = 0
    return sent


def _segments(program: _Program, sent: set[tf.Operation]) -> dict[tf.Operation, int]:
    """The number of the collective that each operator comes after; of a collective, its own."""
    segments: dict[tf.Operation, int] = {}
    last, made_after = program.collectives[-1], 0
    for operation in program.operations:
        found = max((segments[each] for each in program.reads[operation]), default=0)
        after = made_after if _may_wait(operation) else 0
        segments[operation] = program.number.get(operation, max(found, after))
        if operation in sent:
            made_after = program.number[operation]
        if operation is last:
            made_after = 0  # updates are made last; each runs as early as possible
    return segments


def _keep_apart(program: _Program, segments: Mapping[tf.Operation, int]) -> None:
    """Put an identity between operators that oneDNN would fuse across a collective.

    The fused operator would wait for a collective that waits for it, and would never run, without
    an error: TensorFlow fuses after operators are ordered, and does not look for cycles (seen in
    2.18).
    """
    for operation in program.operations:
        others = _merged_with(operation)
        if any(segments.get(each, segments[operation]) != segments[operation] for each in others):
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
    """Operations that were made between two operators that may be fused.

    If one of them waited for the first and were read by the second, the fused kernel would wait for
    itself.
    """
    position = {operation: number for number, operation in enumerate(program.operations)}
    found: set[tf.Operation] = set()
    for operation, number in position.items():
        for other in _merged_with(operation):
            first, last = sorted((number, position.get(other, number)))
            found.update(program.operations[first + 1 : last])
    return found


def _wait_for_collectives(program: _Program, segments: Mapping[tf.Operation, int]) -> None:
    """Let operators wait for the collective before them, and for the operator made before them.

    Without the second, TensorFlow's executor would begin with them: with the second of two losses
    while it still computes the gradients of the first.
    """
    behind: dict[tf.Operation, int] = {}
    within = _within_merged(program)
    made_last: dict[int, tf.Operation] = {}
    for operation in program.operations:
        found = max((behind[each] for each in program.reads[operation]), default=0)
        found = program.number.get(operation, found)
        if found < segments[operation] and operation in program.placed:
            found = segments[operation]
            before = program.collectives[found - 1]
            if operation not in within:
                before = made_last.get(found, before)
            operation._add_control_inputs([before])
        behind[operation] = found
        if operation in program.placed and operation not in program.number:
            made_last[found] = operation


def _let_collectives_wait(program: _Program, segments: Mapping[tf.Operation, int]) -> None:
    """Let a collective wait for the operators that are before it."""
    beyond = len(program.collectives) + 1
    ahead = dict.fromkeys(program.operations, beyond)  # the first collective that needs it
    waits: dict[int, list[tf.Operation]] = {}
    for operation in reversed(program.operations):
        found = program.number.get(operation, ahead[operation])
        following = segments[operation] + 1
        is_free = operation not in program.number and operation in program.placed
        if following < min(found, beyond) and is_free:
            waits.setdefault(following, []).append(operation)
            found = following
        for each in program.reads[operation]:
            ahead[each] = min(ahead[each], found)
    for number, found_before in waits.items():
        program.collectives[number - 1]._add_control_inputs(found_before[::-1])


def _takes_time(operation: tf.Operation) -> bool:
    """Whether it matters when an operator runs. Handles take no time, and programs share them."""
    holds = any(each.dtype == tf.resource or each.dtype._is_ref_dtype for each in operation.outputs)
    return operator_type(operation.type).role in _TAKE_TIME and not holds


def _may_wait(operation: tf.Operation) -> bool:
    """Whether an operator need not run as early as possible. A sum of gradients frees the gradients
    that it adds."""
    return operator_type(operation.type).role in _TAKE_TIME and operation.type != "AddN"


def _bytes(tensor: tf.Tensor) -> int:
    if not tensor.shape.is_fully_defined():
        return 0
    return int(prod(tensor.shape.as_list()) * tensor.dtype.size)
