"""The systems of Tofu's Figures 8 and 9 and Table 3, each from plans of `find_strategy`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from math import ceil
from typing import Any

import tensoropt as tf
from examples.models import Model, lstm_language_model, wide_resnet
from reproduction.entry import Script
from reproduction.links import with_links
from tensoropt.cost.cluster import Cluster, load_cluster
from tensoropt.errors import InfeasibleError
from tensoropt.plan import Plan

__all__ = ["ALL", "CLUSTER", "DEVICES", "SYSTEMS", "Assumed", "throughputs"]

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


@dataclass(frozen=True, slots=True)
class Assumed:
    """Assumptions that Tofu's paper does not publish, as factors of those made here.

    Attributes:
        links: of the bandwidth of all links.
        small: of the speed of products in SmallBatch's step.
        swaps: of the bytes that swapping moves: those beyond the memory, out and in once a step.
        uneven: of the time of the layers of one device in operator placement.
    """

    links: float = 1.0
    small: float = 1.0
    swaps: float = 1.0
    uneven: float = 1.0


def throughputs(model: str, search_seconds: float = 30.0, assumed: Assumed | None = None) -> Found:
    """The samples per second of all systems for a model.

    - Ideal is one device with unlimited memory, times the devices.
    - SmallBatch is one device with the largest batch that fits, times the devices.
    - Swapping is Ideal whose bytes beyond the memory leave each device and come back once a step,
      beside the computation. Policies move no less, so this favours it.
    - Operator placement puts layers on devices in turn; the steps of a layer follow those of the
      layer before as a wavefront. Layers have equal parts of Ideal's step. RNNs alone have it.
    - Tofu is its recursive partition with the largest batch that fits; ours is the plan.

    Args:
        model: a name of `ALL`.
        search_seconds: the option of `find_strategy`.
        assumed: other assumptions than those above.
    """
    assumed = assumed or Assumed()
    largest = _LARGEST[model.split("-")[0]]
    cluster = with_links(load_cluster(CLUSTER), assumed.links)
    scripts = _Scripts(model, cluster, search_seconds)
    alone = scripts.plan(largest, 1, memory_limit_bytes=2**50, **_PLAIN)
    assert alone.peak_bytes is not None, "a plan of a dry run has a peak"
    step, usable = alone.predicted_step_seconds, alone.cluster.device.memory_bytes
    excess = max(0, alone.peak_bytes - usable)
    moving = assumed.swaps * 2 * DEVICES * excess / HOST_BYTES_PER_SECOND
    slower = replace(scripts, cluster=_with_products(cluster, assumed.small))
    found: Found = {
        "ideal": DEVICES * largest / step,
        "smallbatch": _times(DEVICES, slower.fitting(largest, 1, **_PLAIN)),
        "swapping": DEVICES * largest / max(step, moving),
        "tofu": _times(1, scripts.fitting(largest, DEVICES, algorithm="tofu_recursive", **_PLAIN)),
        "ours": _times(1, scripts.fitting(largest, DEVICES)),
    }
    if model.startswith("RNN"):
        layers = int(model.split("-")[1])
        share = ceil(layers / DEVICES) / layers  # of the device with most layers
        waves = (STEPS + min(layers, DEVICES) - 1) / STEPS
        fits = alone.peak_bytes * share <= usable
        found["placement"] = largest / (step * assumed.uneven * share * waves) if fits else None
    return found


@dataclass(frozen=True, slots=True)
class _Scripts:
    """The scripts that train a model on some devices of a cluster."""

    model: str
    cluster: Cluster
    search_seconds: float

    def plan(self, batch: int, devices: int, **options: Any) -> Plan:
        """The plan of one of them."""

        def train() -> Any:
            return tf.train.MomentumOptimizer(0.1, 0.9).minimize(ALL[self.model]().loss)

        return Script(train, batch, devices, self.cluster, self.search_seconds).plan(**options)

    def fitting(self, largest: int, devices: int, **options: Any) -> tuple[int, Plan] | None:
        """The largest batch that fits, a power of two, with its plan; None if none does."""
        for batch in _halves(largest, devices):
            try:
                return batch, self.plan(batch, devices, **options)
            except InfeasibleError:
                continue
        return None


def _with_products(cluster: Cluster, factor: float) -> Cluster:
    """The cluster whose products of matrices and convolutions run at a factor of their speed."""
    efficiency = dict(cluster.device.efficiency)
    efficiency["contraction"] *= factor
    device = replace(cluster.device, efficiency=tuple(sorted(efficiency.items())))
    return replace(cluster, device=device)


def _halves(largest: int, least: int) -> Iterator[int]:
    while largest >= least:
        yield largest
        largest //= 2


def _times(factor: int, found: tuple[int, Plan] | None) -> float | None:
    return None if found is None else factor * found[0] / found[1].predicted_step_seconds
