"""One static order of collectives, the same on every rank, independent of TensorFlow's scheduler.

Ranks that issue their collectives in different orders deadlock, or receive each other's data. A
graph of data dependencies alone leaves the order of independent collectives to the scheduler.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from contextvars import ContextVar

import tensorflow as tf

from collectives.errors import SequenceError

__all__ = ["Sequence", "active_sequence", "in_active_sequence"]

# The innermost sequence of this thread comes last; a new thread starts with none.
_active: ContextVar[tuple[Sequence, ...]] = ContextVar("_active", default=())


class Sequence:
    """A context in which every collective built runs after those built before it.

    That includes collectives that gradient functions build while ``tf.gradients`` is called in the
    context. The collectives run in the order of construction. That order agrees with the data
    dependencies, so there is no cycle. Other operators may overlap with collectives. All
    collectives of a sequence belong to one graph.

    A collective that may overtake waits only for its data and for the operations given to `hold`.
    Collectives built after it wait for it, too.

    A collective across machines has two operators. The first one starts it and returns at once; a
    thread of the network runs started collectives one after another. The second one waits for the
    end. A start waits for the start before it. All other collectives may block a thread of
    TensorFlow's. Each waits for the end of those before it, and for the starts before it. So
    collectives within a machine run beside collectives across machines.

    Ranks with one thread cannot wait in a circle. Take the first collective, in construction order,
    that has not ended on all ranks. All collectives before it have ended, so its data can be
    computed. No thread is blocked in a later collective, because that waits for the start or the
    end of this one. So this one starts on all its ranks, and then it ends.

    The context may be entered again and continues the same order. In nested sequences only the
    innermost one takes collectives. Outside of all sequences collectives are not chained. In eager
    mode a collective runs when it is called, so nothing is chained or recorded.

    Attributes:
        shards_differ: whether a tensor's shards may have different shapes. Ranks compare their
            records, so no record then names a shape, and no rank decides by a shape.
    """

    def __init__(self) -> None:
        self.shards_differ = False
        self._records: list[str] = []
        self._tail: tuple[tf.Operation, ...] = ()
        self._started: tuple[tf.Operation, ...] = ()  # the last start of a collective
        self._waits: tuple[tf.Operation, ...] = ()  # for all collectives that were started
        self._in_turn: list[tf.Operation] = []
        self._beside: list[tf.Operation] = []
        self._overtaking: tuple[tf.Operation, ...] = ()
        self._held: tuple[tf.Operation, ...] = ()
        self._lock = threading.RLock()

    def __enter__(self) -> Sequence:
        _active.set((*_active.get(), self))
        return self

    def __exit__(self, *_: object) -> None:
        active = _active.get()
        if not active or active[-1] is not self:
            raise SequenceError(
                "sequences are left in the reverse order of entering, in the same thread. Got one "
                "that is not the innermost here: use it in a with statement."
            )
        _active.set(active[:-1])

    def add(
        self,
        build: Callable[[], list[tf.Tensor]],
        record: str,
        overtakes: bool = False,
        is_started: bool = False,
    ) -> list[tf.Tensor]:
        """Builds a collective after those before it and notes it.

        Args:
            build: builds the operations; it is called with the control dependency in place. The
                next collective waits for the operation of the last tensor that it returns.
            record: what it is, as every rank puts it: ``allreduce sum float32[4,8] ranks 0,1``.
            overtakes: whether it waits for no other collective; the same on every rank. What
                carries it needs no order then, and holds no thread while it waits.
            is_started: whether one operator starts the collective and another one waits for it; the
                same on every rank. The tensors are results of the second operator, whose inputs are
                results of the first.

        Returns:
            What ``build`` returned.

        Raises:
            SequenceError: if it returned nothing, or builds in another graph than those before: in
                the body of a ``tf.function``, ``tf.cond`` or ``tf.while_loop``, say.
        """
        if tf.executing_eagerly():
            return build()
        with self._lock:
            graph = tf.compat.v1.get_default_graph()
            last = self.last
            if last and last[0].graph is not graph:
                raise SequenceError(
                    "the collectives of a sequence lie in one graph, else their order is not "
                    f"static. Got {record} in {graph} after {last[0].name} in "
                    f"{last[0].graph}: build it outside of the function, branch or loop "
                    "body, or enter a sequence of its own there."
                )
            if overtakes:
                before = self._held
            else:
                before = self._started or self._held if is_started else self._tail + self._started
            with graph.control_dependencies(before):
                tensors = build()
            if not tensors:
                raise SequenceError(
                    f"a collective in a sequence returns what to wait for. Got nothing of {record}."
                )
            self._append(tensors, overtakes, is_started)
            self._records.append(record)
            return tensors

    def _append(self, tensors: list[tf.Tensor], overtakes: bool, is_started: bool) -> None:
        """Let later collectives wait for one with these results."""
        last = tensors[-1].op
        if is_started:
            self._started = (last.inputs[0].op,)
            waits = dict.fromkeys(tensor.op for tensor in tensors)
            self._waits += tuple(waits)
            self._beside += waits
        elif overtakes:
            self._tail += (last,)
            self._overtaking += (last,)
        else:
            self._tail = (last,)
            self._in_turn += dict.fromkeys(tensor.op for tensor in tensors)

    def fork(self) -> Sequence:
        """A sequence that goes on from the last collective of this one, which stays as it is."""
        forked = Sequence()
        forked._records, forked._tail = list(self._records), self._tail
        forked._overtaking, forked._held = self._overtaking, self._held
        forked._in_turn, forked._beside = list(self._in_turn), list(self._beside)
        forked._started, forked._waits = self._started, self._waits
        forked.shards_differ = self.shards_differ
        return forked

    def hold(self, operations: Iterable[tf.Operation]) -> None:
        """Let all that is built from here on wait for some operations, too, which wait for all
        `last`: those that may overtake, too."""
        self._tail = self._held = tuple(operations)
        self._started = self._waits = ()

    @property
    def last(self) -> tuple[tf.Operation, ...]:
        """What waits for, or is, each collective so far."""
        return (*self._tail, *self._started, *self._waits)

    @property
    def in_turn(self) -> tuple[tf.Operation, ...]:
        """Collectives that each wait for the end of the one before, in order."""
        return tuple(self._in_turn)

    @property
    def waits(self) -> tuple[tf.Operation, ...]:
        """The operations that wait for collectives across machines, which were started before."""
        return tuple(self._beside)

    @property
    def starts(self) -> tuple[tf.Operation, ...]:
        """The operations that start collectives across machines, in order."""
        return tuple(dict.fromkeys(each.inputs[0].op for each in self._beside))

    @property
    def overtaking(self) -> tuple[tf.Operation, ...]:
        """Collectives that wait for no other, which a run fetches: TensorFlow leaves out one whose
        result a rank needs not, and the other ranks would wait for it."""
        return self._overtaking

    @property
    def records(self) -> tuple[str, ...]:
        """What was built, in order."""
        return tuple(self._records)


def in_active_sequence(
    build: Callable[[], list[tf.Tensor]],
    record: str,
    overtakes: bool = False,
    is_started: bool = False,
) -> list[tf.Tensor]:
    """`Sequence.add` of the innermost active sequence; just ``build()`` where there is none."""
    active = active_sequence()
    return build() if active is None else active.add(build, record, overtakes, is_started)


def active_sequence() -> Sequence | None:
    """The innermost active sequence."""
    active = _active.get()
    return active[-1] if active else None
