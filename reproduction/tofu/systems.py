"""The systems of Tofu's Figures 8 and 9 and Table 3, each from plans of `find_strategy`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from math import ceil
from typing import Any

import tensoropt as tf
from examples.models import Model, lstm_language_model, wide_resnet
from reproduction.entry import Script
from tensoropt.cost.cluster import load_cluster
from tensoropt.errors import InfeasibleError
from tensoropt.plan import Plan

__all__ = ["ALL", "SYSTEMS", "throughputs"]

CLUSTER, DEVICES = "8-k80", 8
STEPS = 20
HOST_BYTES_PER_SECOND = 10e9
"""Rate of the link to the host, which all devices share (section 7.1)."""
_PLAIN = {"microbatches": 1, "save_memory": False, "pipeline": False, "rewrite": False}
"""What Tofu and its alternatives do not do."""
_LARGEST = {"RNN": 512, "WResNet": 128}
"""Batches of Ideal (section 7.2)."""
SYSTEMS = ("ideal", "smallbatch", "swapping", "placement", "tofu", "ours")

Found = dict[str, float | None]
"""Samples per second; None if no batch fits the memory."""


def _rnn(layers: int, thousands: int) -> Callable[[], Model]:
    return partial(
        lstm_language_model, 1024 * thousands, layers, STEPS, vocabulary=1024, embedding=128
    )


ALL: Mapping[str, Callable[[], Model]] = {
    **{f"RNN-{n}-{k}K": _rnn(n, k) for k in (4, 6, 8) for n in (6, 8, 10)},
    **{
        f"WResNet-{d}-{w}": partial(wide_resnet, d, w)
        for w in (4, 6, 8, 10)
        for d in (50, 101, 152)
    },
}
"""The models of Figures 9 and 8."""


def throughputs(model: str, search_seconds: float = 30.0) -> Found:
    """The samples per second of all systems for a model.

    - Ideal is one device with unlimited memory, times the devices.
    - SmallBatch is one device with the largest batch that fits, times the devices.
    - Swapping is Ideal whose bytes beyond the memory leave each device and come back once a step,
      beside the computation. Policies move no less, so this favours it.
    - Operator placement puts layers on devices in turn; the steps of a layer follow those of the
      layer before as a wavefront. Layers have equal parts of Ideal's step. RNNs alone have it.
    - Tofu is its recursive partition with the largest batch that fits; ours is the plan.
    """
    largest = _LARGEST[model.split("-")[0]]
    alone = _plan(model, largest, 1, search_seconds, memory_limit_bytes=2**50, **_PLAIN)
    assert alone.peak_bytes is not None, "a plan of a dry run has a peak"
    step, usable = alone.predicted_step_seconds, alone.cluster.device.memory_bytes
    excess = max(0, alone.peak_bytes - usable)
    moving = 2 * DEVICES * excess / HOST_BYTES_PER_SECOND
    found: Found = {
        "ideal": DEVICES * largest / step,
        "smallbatch": _times(DEVICES, _fitting(model, largest, 1, search_seconds, **_PLAIN)),
        "swapping": DEVICES * largest / max(step, moving),
        "tofu": _times(
            1,
            _fitting(model, largest, DEVICES, search_seconds, algorithm="tofu_recursive", **_PLAIN),
        ),
        "ours": _times(1, _fitting(model, largest, DEVICES, search_seconds)),
    }
    if model.startswith("RNN"):
        layers = int(model.split("-")[1])
        share = ceil(layers / DEVICES) / layers  # of the device with most layers
        waves = (STEPS + min(layers, DEVICES) - 1) / STEPS
        fits = alone.peak_bytes * share <= usable
        found["placement"] = largest / (step * share * waves) if fits else None
    return found


def _plan(model: str, batch: int, devices: int, search_seconds: float, **options: Any) -> Plan:
    def train() -> Any:
        return tf.train.MomentumOptimizer(0.1, 0.9).minimize(ALL[model]().loss)

    cluster = load_cluster(CLUSTER)
    return Script(train, batch, devices, cluster, search_seconds).plan(**options)


def _fitting(
    model: str, largest: int, devices: int, search_seconds: float, **options: Any
) -> tuple[int, Plan] | None:
    """The largest batch that fits, a power of two, with its plan; None if none does."""
    for batch in _halves(largest, devices):
        try:
            return batch, _plan(model, batch, devices, search_seconds, **options)
        except InfeasibleError:
            continue
    return None


def _halves(largest: int, least: int) -> Iterator[int]:
    while largest >= least:
        yield largest
        largest //= 2


def _times(factor: int, found: tuple[int, Plan] | None) -> float | None:
    return None if found is None else factor * found[0] / found[1].predicted_step_seconds
