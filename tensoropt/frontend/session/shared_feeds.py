"""``feed="share"``: each rank feeds some rows of the batch, in the order of ranks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tensoropt.errors import FeedError, OptionError
from tensoropt.execution.world.shares import RowsTable, Share
from tensoropt.frontend.job.job import Job

__all__ = ["as_shares", "check_feed", "fed_rows", "whole"]

Array = np.ndarray[Any, Any]

_FEEDS = ("whole", "share")


def check_feed(feed: str) -> None:
    """Check the option ``feed`` of a run.

    Raises:
        OptionError: for another value than "whole" or "share".
    """
    if feed not in _FEEDS:
        raise OptionError.one_of("a value of feed", feed, _FEEDS)


def as_shares(
    job: Job, feed_dict: Mapping[Any, Any]
) -> tuple[dict[Any, Any], tuple[tuple[int, ...], ...]]:
    """Return a feed_dict whose values with dimensions are shares of batches, and the numbers of
    rows that ranks feed.

    The global batch has the rows of the first rank, then those of the second, and so on. All ranks
    call this.

    Raises:
        FeedError: if ranks feed different placeholders.
    """
    values: dict[Any, Any] = {key: np.asarray(value) for key, value in feed_dict.items()}
    own = [len(value) if value.ndim else -1 for value in values.values()]
    by_rank = job.agreement.gather("the rows of a feed_dict", own)
    counts = tuple(tuple(map(int, of_rank)) for of_rank in by_rank)
    if len({tuple(count < 0 for count in of_rank) for of_rank in counts}) > 1:
        raise FeedError(
            "with feed='share' every rank feeds rows of the same placeholders. Got numbers of rows "
            f"{counts} by rank; feed an array without rows on a rank that has none."
        )
    for number, (key, value) in enumerate(values.items()):
        if value.ndim:
            first = sum(of_rank[number] for of_rank in counts[: job.group.rank])
            size = sum(of_rank[number] for of_rank in counts)
            values[key] = Share(np.array([[first, first + len(value)]]), value, size)
    return values, counts


def fed_rows(job: Job, values: Mapping[str, Any], table: RowsTable) -> bool:
    """Whether every rank feeds the rows that it reads. All ranks call this.

    Args:
        job: the ranks.
        values: the fed values, by `fed_operator`.
        table: the rows that this rank reads.
    """
    shares = [value for value in values.values() if isinstance(value, Share)]
    has_all = all(
        share.part([slice(*rows)]) is not None
        for share in shares
        for rows in table[share.size].tolist()
    )
    return all(job.agreement.gather("the rows of shares", has_all))


def whole(job: Job, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values with whole batches in place of shares; ranks send each other their rows."""
    return {
        name: _joined(job, value) if isinstance(value, Share) else value
        for name, value in sorted(values.items())
    }


def _joined(job: Job, share: Share) -> Array:
    """The rows of all ranks."""
    counts = job.agreement.gather("the rows of a share", len(share.value))
    padded = np.zeros((max(counts), *share.shape[1:]), share.dtype)
    padded[: len(share.value)] = share.value
    rows = job.group.allgather(padded).reshape(len(counts), max(counts), *share.shape[1:])
    return np.concatenate([of_rank[:count] for of_rank, count in zip(rows, counts, strict=True)])
