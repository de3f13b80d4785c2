"""While kernels are compiled, no time of a search passes."""

from __future__ import annotations

import time

import numba
import numpy as np
import pytest

from tensoropt.arrays import Int64Array
from tensoropt.search import compilation
from tensoropt.search.compilation import compilation_announced, compiled_seconds, search_clock
from tensoropt.search.watch import Watch


def test_the_clock_of_a_search_stands_still_while_a_kernel_is_compiled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @numba.njit(nogil=True)  # not cached: compiled here
    def inner(numbers: Int64Array) -> int:
        return int(numbers[0] + 1)

    @numba.njit(nogil=True)
    def outer(numbers: Int64Array) -> int:
        found: int = inner(numbers) * 2
        return found

    before, begun, real = compiled_seconds(), search_clock(), time.monotonic()
    monkeypatch.setattr(compilation, "_LONG_SECONDS", 0.0)
    announced: list[str] = []
    with Watch(seconds=1e6) as watch, compilation_announced(lambda: announced.append("once")):
        left = watch.seconds_left
        assert outer(np.ones(1, np.int64)) == 4
        assert outer(np.ones(1, np.int32)) == 4
        assert announced == ["once"]
        compiled = compiled_seconds() - before
        assert compiled > 0
        passed = time.monotonic() - real
        assert left - watch.seconds_left <= passed - compiled + 1e-3
    assert search_clock() - begun <= time.monotonic() - real - compiled + 1e-3
    once = compiled_seconds()
    assert outer(np.zeros(1, np.int64)) == 2
    assert compiled_seconds() == once


def test_of_a_kernel_that_cannot_be_compiled_the_clock_goes_on() -> None:
    @numba.njit(nogil=True)
    def wrong(numbers: Int64Array) -> int:
        return int(numbers.nothing)  # type: ignore[attr-defined]

    with pytest.raises(numba.TypingError):
        wrong(np.ones(1, np.int64))
    begun = search_clock()
    time.sleep(0.01)
    assert search_clock() - begun >= 0.009
