"""Types of operators of data pipelines. They stay outside the parallel graph, and are fed."""

from __future__ import annotations

__all__ = ["ELEMENT_TYPES", "PIPELINE_TYPES", "QUEUE_ACTIONS"]

ELEMENT_TYPES = frozenset(
    {"IteratorGetNext", "IteratorGetNextSync", "IteratorToStringHandle"}
    | {"QueueDequeueV2", "QueueDequeueManyV2", "QueueDequeueUpToV2"}
    | {"QueueIsClosedV2", "QueueSizeV2", "ReaderReadUpToV2", "ReaderReadV2"}
)
"""Types that return elements or the state of a data pipeline. Their outputs are fed."""

QUEUE_ACTIONS = frozenset({"QueueCloseV2", "QueueEnqueueManyV2", "QueueEnqueueV2"})
"""Types that fill and close queues in threads of their own."""

PIPELINE_TYPES = ELEMENT_TYPES | QUEUE_ACTIONS | {"MakeIterator"}
"""Types that act on a data pipeline. In the parallel graph they become NoOps."""
