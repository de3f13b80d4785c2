"""What a step took: memory that is in use at once, and no more."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow

from collectives.buffers import fresh, usage
from tensoropt.execution.world.world import SingleProcessWorld
from tensoropt.frontend.measuring.step_meter import Meter
from tensoropt.parallel.mesh import Mesh

plain = tensorflow.compat.v1
MB = 1 << 20
ONE = SingleProcessWorld(Mesh(()))


def peak_of(build: Callable[[], Any]) -> tuple[int, int]:
    """What a meter says of a run beyond what was there before, and the sum of both peaks."""
    with plain.Graph().as_default(), plain.Session() as session:
        fetched = build()
        before = session.run(tensorflow.constant(0)) + usage.bytes
        device = "CPU:0"
        before += plain.config.experimental.get_memory_info(device)["current"]
        usage.reset()
        with Meter(ONE) as meter:
            session.run(fetched)
        found = meter.peak_bytes()
        assert found is not None
        allocated = plain.config.experimental.get_memory_info(device)["peak"]
        return found - before, allocated + usage.peak_bytes - before


def buffered(value: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Takes a buffer of 8 MiB for a moment."""
    return np.float32(fresh((2 * MB,), np.dtype(np.float32)).size + value.size)


def doubled(after: list[Any]) -> Any:
    """A scalar from a tensor of 8 MiB that was made of one of 4 MiB."""
    with plain.control_dependencies(after):
        values = plain.random_uniform([MB])
        return plain.reduce_sum(plain.concat([values, values], 0))


def test_peaks_that_come_one_after_the_other_are_not_added() -> None:
    def build() -> Any:
        first = doubled([])
        with plain.control_dependencies([first]):
            moved = plain.numpy_function(buffered, [first], tensorflow.float32)
        return doubled([moved])

    found, _ = peak_of(build)
    assert 12 * MB <= found < 18 * MB  # and not 20


def test_peaks_that_come_together_are_added() -> None:
    def build() -> Any:
        values = plain.random_uniform([MB])
        moved = plain.numpy_function(buffered, [values], tensorflow.float32)
        with plain.control_dependencies([moved]):
            return plain.reduce_sum(plain.concat([values, values], 0)), plain.reduce_sum(values)

    found, _ = peak_of(build)
    assert 12 * MB <= found < 18 * MB


def test_tensors_that_the_allocator_does_not_count() -> None:
    with plain.Graph().as_default(), plain.Session() as session:
        small = [plain.random_uniform([MB // 32]) for _ in range(64)]  # 128 KiB each
        with plain.control_dependencies(small):
            wait = plain.numpy_function(
                lambda: np.float32(time.sleep(0.1) or 0), [], tensorflow.float32
            )
        with plain.control_dependencies([wait]):
            fetched = plain.reduce_sum(plain.add_n(small))
        session.run(fetched)
        before = plain.config.experimental.get_memory_info("CPU:0")["current"] + usage.bytes
        with Meter(ONE) as meter:
            session.run(fetched)
    found = meter.peak_bytes()
    assert found is not None
    assert 8 * MB <= found - before < 10 * MB


def test_nothing_is_counted_that_nobody_asks_for_or_that_ranks_share() -> None:
    for meter in (Meter(ONE, counts_memory=False), Meter(SingleProcessWorld(Mesh((2,))))):
        before = usage.changed
        with meter:
            assert usage.changed is before
        assert meter.peak_bytes() is None
        assert meter.step_seconds() > 0
        assert meter.network_seconds() == 0


def test_a_meter_leaves_no_trace_when_a_step_fails() -> None:
    before = usage.changed
    try:
        with Meter(ONE) as meter:
            raise RuntimeError("a step that fails")
    except RuntimeError:
        assert usage.changed is before
    assert meter.peak_bytes() is not None
