"""Operators of data pipelines, which stay outside of the parallel graph: what they make is fed."""

from __future__ import annotations

__all__ = ["ELEMENT_TYPES", "PIPELINE_TYPES", "QUEUE_ACTIONS"]

ELEMENT_TYPES = frozenset(
    {"IteratorGetNext", "IteratorGetNextSync", "IteratorToStringHandle"}
    | {"QueueDequeueV2", "QueueDequeueManyV2", "QueueDequeueUpToV2"}
    | {"QueueIsClosedV2", "QueueSizeV2", "ReaderReadUpToV2", "ReaderReadV2"}
)
"""Operators that say something of a data pipeline; it comes fed."""

QUEUE_ACTIONS = frozenset({"QueueCloseV2", "QueueEnqueueManyV2", "QueueEnqueueV2"})
"""Operators that fill and close queues, in threads of their own."""

PIPELINE_TYPES = ELEMENT_TYPES | QUEUE_ACTIONS | {"MakeIterator"}
"""Operators that act on a data pipeline, outside of the parallel graph: nothing is left of them."""
