"""Seconds, CPU seconds and peak memory of the phases of ``fit``, measured by Keras's callbacks.

The first epoch warms up: it traces, and ours plans and compiles. All later epochs are measured.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf

from benchmarks.peak_memory import peak_mib, reset_peak, resident_mib

__all__ = ["EPOCH", "PHASES", "Figures", "Phases", "time_input"]

PHASES = ("start", "first epoch", "train", "evaluate", "summaries", "save", "end")
"""The phases in their order."""

EPOCH = PHASES[2:-1]
"""The phases of an epoch."""

_KEYS = ("seconds", "cpu_seconds", "peak_mib", "above_mib")
Figures = dict[str, float]
Function = Callable[[Any], Any]


class Phases:
    """The figures of phases, one of which is under way.

    Attributes:
        figures: for each phase its seconds, CPU seconds of all threads, peak resident MiB, and MiB
            of the peak above the memory at the phase's beginning. Seconds are sums over the
            measured epochs, MiB the largest.
        input_seconds: seconds of the measured epochs in which training waited for its input.
    """

    def __init__(self) -> None:
        self.figures: dict[str, Figures] = {}
        self.input_seconds = 0.0
        self._epochs = 0
        self._warm = False
        self._phase: str | None = None
        self._started = (0.0, 0.0, 0.0)
        self._waits_since: float | None = None
        self._enter("start")

    def callbacks(self, summaries: list[Any], savers: list[Any]) -> list[Any]:
        """The callbacks of ``fit``: these, with callbacks that note the phases around them."""
        return [
            _calls(
                on_train_begin=lambda: self._enter("first epoch"),
                on_epoch_begin=self._begin_epoch,
                on_train_batch_begin=self._begin_batch,
                on_test_begin=self._of_epoch("evaluate"),
                on_test_end=self._of_epoch("summaries"),
                on_train_end=lambda: self._enter("end"),
            ),
            *summaries,
            _calls(on_epoch_end=self._of_epoch("save")),
            *savers,
            _calls(on_epoch_end=self._end_epoch),
        ]

    def wait(self, following: Callable[[], Any]) -> Any:
        """The next batch of an iterator; training waits for it."""
        started = time.perf_counter()
        try:
            return following()
        finally:
            if self._phase == "train":
                self.input_seconds += time.perf_counter() - started

    def finish(self) -> dict[str, Figures]:
        """End the last phase. Returns the figures of all phases, seconds for one epoch."""
        self._leave()
        for phase in EPOCH:
            of = self.figures[phase]
            of["seconds"] /= self._epochs
            of["cpu_seconds"] /= self._epochs
        self.figures["input"] = {"seconds": self.input_seconds / self._epochs}
        seconds = sum(self.figures[phase]["seconds"] for phase in EPOCH)
        self.figures["epoch"] = {"seconds": seconds}
        return self.figures

    def _begin_epoch(self) -> None:
        if self._warm:
            self._enter("train")
        self._waits_since = time.perf_counter()

    def _begin_batch(self) -> None:
        """Count the making of the epoch's iterator as input."""
        if self._warm and self._waits_since is not None:
            self.input_seconds += time.perf_counter() - self._waits_since
        self._waits_since = None

    def _of_epoch(self, phase: str) -> Callable[[], None]:
        def enter() -> None:
            if self._warm:
                self._enter(phase)

        return enter

    def _end_epoch(self) -> None:
        if self._warm:
            self._leave()
            self._epochs += 1
        self._warm = True

    def _enter(self, phase: str) -> None:
        self._leave()
        reset_peak()
        self._phase = phase
        self._started = (time.perf_counter(), time.process_time(), resident_mib())

    def _leave(self) -> None:
        if self._phase is None:
            return
        seconds, cpu_seconds, resident = self._started
        peak = peak_mib()
        of = self.figures.setdefault(self._phase, dict.fromkeys(_KEYS, 0.0))
        of["seconds"] += time.perf_counter() - seconds
        of["cpu_seconds"] += time.process_time() - cpu_seconds
        of["peak_mib"] = max(of["peak_mib"], peak)
        of["above_mib"] = max(of["above_mib"], peak - resident)
        self._phase = None


def _calls(**calls: Callable[[], None]) -> Any:
    """A callback that calls functions without arguments."""

    def without_arguments(call: Callable[[], None]) -> Callable[..., None]:
        return lambda *_, **__: call()

    return keras.callbacks.LambdaCallback(
        **{name: without_arguments(call) for name, call in calls.items()}
    )


def time_input(model: Any, name: str, phases: Phases, takes_batches: bool) -> None:
    """Note the time in which a model's function waits for input.

    Args:
        model: a compiled model.
        name: "train" or "test".
        phases: notes the times.
        takes_batches: whether the function takes batches from Python. Keras's own functions take
            them inside of a graph; they are replaced by others that take them before.
    """
    make = getattr(model, f"make_{name}_function")

    def made(force: bool = False) -> Any:
        before = getattr(model, f"{name}_function")
        make(force)
        function = getattr(model, f"{name}_function")
        if function is not before:
            if not takes_batches:
                function = _taking_before(getattr(model, f"{name}_step"))
            function = _Waiting(function, phases)
            setattr(model, f"{name}_function", function)
        return function

    setattr(model, f"make_{name}_function", made)


def _taking_before(step: Function) -> Function:
    """The function that runs a step on the next batch of an iterator."""
    traced = tf.function(step, reduce_retracing=True)
    return lambda batches: traced(next(batches))


class _Waiting:
    """A function of an iterator whose waits are noted; it has the function's attributes."""

    def __init__(self, function: Function, phases: Phases) -> None:
        self._function = function
        self._phases = phases

    def __call__(self, batches: Any) -> Any:
        return self._function(_Batches(batches, self._phases))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._function, name)


class _Batches(Iterator[Any]):
    """An iterator whose waits are noted; it has the iterator's attributes."""

    def __init__(self, batches: Any, phases: Phases) -> None:
        self._batches = batches
        self._iterator = iter(batches)
        self._phases = phases

    def __next__(self) -> Any:
        return self._phases.wait(lambda: next(self._iterator))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batches, name)
