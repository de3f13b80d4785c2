"""What Python knows of the operators of collectives in C++, by number, while their graphs live."""

from __future__ import annotations

import itertools
import threading
import weakref
from dataclasses import dataclass

import tensorflow as tf

from collectives.operations.calls import Watch

__all__ = ["NotedCall", "noted", "noted_call"]


@dataclass(frozen=True, eq=False)
class NotedCall:
    """An operator of a collective.

    Attributes:
        watch: is told when it runs.
        record: describes it, in the same words on all ranks.
        ranks: its members.
    """

    __slots__ = ("__weakref__", "ranks", "record", "watch")  # slots=True omits weak references

    watch: Watch
    record: str
    ranks: tuple[int, ...]


_ATTRIBUTE = "_calls_of_collectives"
_calls: weakref.WeakValueDictionary[int, NotedCall] = weakref.WeakValueDictionary()
_numbers = itertools.count()
_lock = threading.Lock()


def noted(call: NotedCall) -> int:
    """Return the number of a new operator in the default graph, which then keeps the call.

    Numbers are unique in the process, because all transports note their times in one place. The
    graph outside of all functions keeps the call, because functions outlive their own graphs.
    """
    graph = tf.compat.v1.get_default_graph()
    while isinstance(graph, tf.__internal__.FuncGraph):
        graph = graph.outer_graph
    number = next(_numbers)
    _calls[number] = call
    # A table by graph would keep the graphs that watches refer to; an attribute does not.
    with _lock:
        calls = getattr(graph, _ATTRIBUTE, None) or []
        calls.append(call)
        setattr(graph, _ATTRIBUTE, calls)
    return number


def noted_call(number: int) -> NotedCall | None:
    """Return the call of a number; None if its graph is gone."""
    return _calls.get(number)
