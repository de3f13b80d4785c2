"""Descriptions of fed values, by which ranks notice that they feed different data."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from tensoropt.execution.agreement.agreement import Agreement
from tensoropt.execution.world.shares import Share

__all__ = ["CHECK_FEEDS_EVERY", "FedValues", "ReadArrays"]

Array = np.ndarray[Any, Any]

CHECK_FEEDS_EVERY = 50
"""The default: whole batches are compared in the first run and in every 50th run."""

_BLOCKS, _BLOCK_WORDS = 64, 32  # 16 KiB, whose checksum takes some ten microseconds
_WORD_BYTES = 8
_GOLDEN = 0.6180339887498949
_STRINGS = 1024


class FedValues:
    """Describes the fed values of runs, each in one line.

    Each rank cuts its shard from the batch that the rank itself was fed. If ranks fed different
    batches, they would train on a mixture. (All other values are the first rank's.) Therefore the
    line of a batch has a checksum. In every `every`-th run it is that of the whole batch; in other
    runs, that of blocks spread over the batch, which shuffled batches do not share. Ranks that feed
    shares of a batch have nothing to compare but its shape.

    Args:
        batches: the names of placeholders of batches.
        every: the number of runs from one checksum of whole batches to the next; 0 for no
            checksums.

    Attributes:
        batches: see above.
    """

    def __init__(self, batches: frozenset[str], every: int) -> None:
        self.batches = batches
        self._every = every
        self._runs = 0

    def lines(self, feeds: Mapping[str, Array | Share], word: str = "feed_dict of") -> list[str]:
        """Return the lines of the next run. All ranks call this for the same runs.

        Args:
            feeds: fed values by name.
            word: the words before each name.
        """
        is_whole = self._every > 0 and self._runs % self._every == 0
        self._runs += 1
        lines = []
        for name, value in sorted(feeds.items()):
            line = f"{word} {name!r}, shape {list(value.shape)}"
            if isinstance(value, Share):
                line += ", in shares"
            elif self._every and name in self.batches:
                line += f", values with checksum {_checksum(value, is_whole):08x}"
            lines.append(line)
        return lines


class ReadArrays:
    """Compares the arrays that a call reads batches from, which later calls may read again.

    All of them is compared if the samples differ from those of the call before, or `every` calls
    after the last time; in other calls, the samples. Arrays that are changed in between are thus
    compared like fed batches, see `FedValues`.
    """

    def __init__(self) -> None:
        self._calls = 0  # since all was compared
        self._equal: list[str] = []  # the samples of the last call, equal on all ranks

    def check(
        self, agreement: Agreement, call: str, arrays: Mapping[str, Array], every: int, remedy: str
    ) -> None:
        """Check that the arrays of all ranks are equal. All ranks call this.

        Args:
            agreement: the agreement between all ranks.
            call: the call, as the user would write it.
            arrays: the arrays by the names of arguments.
            every: see above; 0 for no comparison.
            remedy: advice for the error if the arrays differ.

        Raises:
            RankMismatchError: on every rank, naming the first array that differs.
        """
        if not arrays or not every:
            return
        samples = _array_lines(arrays, is_whole=False)
        self._calls = 0 if samples != self._equal else self._calls + 1
        is_whole = self._calls % every == 0
        lines = [*samples, *(_array_lines(arrays, is_whole=True) if is_whole else ())]
        self._equal = []
        agreement.check(call, lines, remedy)
        self._equal = samples


def _array_lines(arrays: Mapping[str, Array], is_whole: bool) -> list[str]:
    return [
        f"argument {name!r}, shape {list(value.shape)}, "
        f"values with checksum {_checksum(value, is_whole):08x}"
        for name, value in sorted(arrays.items())
    ]


def _checksum(value: Array, is_whole: bool) -> int:
    if value.dtype == object:
        texts = value.reshape(-1)
        sample = texts if is_whole else texts[:: max(1, texts.size // _STRINGS)]
        return zlib.crc32(repr(sample.tolist()).encode())
    data = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
    words = data.size // _WORD_BYTES
    if is_whole or words <= 2 * _BLOCKS * _BLOCK_WORDS:
        return zlib.crc32(data.data)
    return zlib.crc32(data[: words * _WORD_BYTES].view(np.uint64)[_sampled_positions(words)].data)


@lru_cache(maxsize=64)
def _sampled_positions(words: int) -> Array:
    """Return the positions of the words that are compared, in a batch of this number of words.

    They are one block in each of `_BLOCKS` equal parts. The offsets in the parts differ, since
    images often begin alike.
    """
    part = words // _BLOCKS
    shifts = (np.arange(_BLOCKS) * _GOLDEN % 1 * (part - _BLOCK_WORDS)).astype(np.int64)
    starts = np.arange(_BLOCKS) * part + shifts
    return np.asarray((starts[:, None] + np.arange(_BLOCK_WORDS)).reshape(-1))
