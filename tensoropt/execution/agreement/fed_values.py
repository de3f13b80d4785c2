"""Descriptions of fed values, by which ranks notice that they feed different data."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np

__all__ = ["CHECK_FEEDS_EVERY", "FedValues"]

Array = np.ndarray[Any, Any]

CHECK_FEEDS_EVERY = 50
"""By default batches are compared whole in the first run and in every 50th."""

_BLOCKS, _BLOCK_WORDS = 64, 32  # 16 KiB: some ten microseconds
_WORD_BYTES = 8
_GOLDEN = 0.6180339887498949
_STRINGS = 1024


class FedValues:
    """Describes the fed values of runs, one line each.

    Each rank takes its shard of the batch that it is fed itself: ranks that feed different batches
    would train on a mixture of them. (The first rank's value is taken for everything else.) So a
    batch's line has a checksum: of the whole batch now and then, and in all other runs of blocks
    spread over it, which differ between shuffles.

    Args:
        batches: the placeholders of batches.
        every: compare whole batches in each run of this number; 0 to compare no values.
    """

    def __init__(self, batches: frozenset[str], every: int) -> None:
        self._batches = batches
        self._every = every
        self._runs = 0

    def lines(self, feeds: Mapping[str, Array], word: str = "feed_dict of") -> list[str]:
        """The lines of the next run, which every rank makes.

        Args:
            feeds: fed values by name.
            word: says in the lines what the names belong to.
        """
        is_whole = self._every > 0 and self._runs % self._every == 0
        self._runs += 1
        lines = []
        for name, value in sorted(feeds.items()):
            line = f"{word} {name!r}, shape {list(value.shape)}"
            if self._every and name in self._batches:
                line += f", values with checksum {_checksum(value, is_whole):08x}"
            lines.append(line)
        return lines


def _checksum(value: Array, is_whole: bool) -> int:
    if value.dtype == object:
        texts = value.reshape(-1)
        some = texts if is_whole else texts[:: max(1, texts.size // _STRINGS)]
        return zlib.crc32(repr(some.tolist()).encode())
    data = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
    words = data.size // _WORD_BYTES
    if is_whole or words <= 2 * _BLOCKS * _BLOCK_WORDS:
        return zlib.crc32(data.data)
    return zlib.crc32(data[: words * _WORD_BYTES].view(np.uint64)[_places(words)].data)


@lru_cache(maxsize=64)
def _places(words: int) -> Array:
    """The positions of the words that represent a batch of so many words.

    One block in each of equal parts, at different offsets: images often begin alike.
    """
    part = words // _BLOCKS
    shifts = (np.arange(_BLOCKS) * _GOLDEN % 1 * (part - _BLOCK_WORDS)).astype(np.int64)
    starts = np.arange(_BLOCKS) * part + shifts
    return np.asarray((starts[:, None] + np.arange(_BLOCK_WORDS)).reshape(-1))
