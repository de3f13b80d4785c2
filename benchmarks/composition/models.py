"""The planned steps: those of the zoo, Unity's models, and BERT with 24 layers."""

from __future__ import annotations

from dataclasses import replace

import tensoropt as tf
from benchmarks.search.bert import bert
from benchmarks.search.zoo.catalogue import ZOO
from benchmarks.search.zoo.measuring import request_of, request_of_script
from reproduction.unity.models import MODELS
from tensoropt.cost.cluster import Cluster, load_cluster
from tensoropt.planner.request import Request

__all__ = ["BERT", "NAMES", "step_request"]

BERT = "bert_24"
NAMES = (*ZOO, *MODELS, BERT)
_MACHINE = 8  # devices of a machine


def step_request(name: str, devices: int, *, small: bool = False) -> Request:
    """The request for a step, without options.

    Steps of the zoo have dry runs, like those of scripts. Emitting one of the other steps takes a
    minute, so their peaks are unknown, and the search's sum of memory has to fit.

    Args:
        name: an element of `NAMES`.
        devices: number of devices, in machines of eight.
        small: whether a graph of the zoo has the fewest layers with all kinds of its operators.
    """
    cluster = _machines(devices)
    if name in ZOO:
        return request_of(name, ZOO[name].small if small else None, cluster, devices)
    large = request_of_script(lambda: _minimized(name), _batch(name, devices), cluster, devices)
    return replace(large, dry_run_peak=None, stage_peak=None)


def _minimized(name: str) -> object:
    if name == BERT:
        loss, adam = bert(24, 1024, 16, 4096, 512).loss, True
    else:
        loss, adam = MODELS[name].build(), MODELS[name].adam
    make = tf.train.AdamOptimizer if adam else tf.train.GradientDescentOptimizer
    return make(1e-4 if adam else 0.01).minimize(loss)


def _batch(name: str, devices: int) -> int:
    return 256 if name == BERT else MODELS[name].batch * devices


def _machines(devices: int) -> Cluster:
    """At least two machines of eight V100."""
    known = load_cluster("2x8-v100")
    between, within = known.levels
    count = max(2, -(-devices // _MACHINE))
    return replace(known, levels=(replace(between, count=count), within))
