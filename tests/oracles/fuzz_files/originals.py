"""The real files that are mutated: plans, profiles, measured links and clusters."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import tensoropt as tf
from tensoropt.cost.cluster import cluster_names, load_cluster
from tensoropt.cost.machine_profile import (
    MeasuredCollective,
    Overheads,
    Profile,
    Setting,
    measured_cluster,
)
from tensoropt.cost.measured_links import (
    LinkSetting,
    LinkTime,
    MeasuredLevel,
    MeasuredLinks,
    MeasuredPace,
)
from tensoropt.cost.measured_operator_times import MeasuredOperator
from tensoropt.cost.operator_time import OperatorWork
from tensoropt.cost.slowdown_in_steps import MeasuredCall, MeasuredStep
from tensoropt.parallel.resharding import StepTraffic
from tensoropt.plan import Plan
from tensoropt.plan.validation_result import Trial, Validation

__all__ = ["originals"]


def originals() -> dict[str, list[dict[str, Any]]]:
    """The values of valid files, by kind."""
    profile = _profile()
    clusters = [load_cluster(name) for name in cluster_names()]
    clusters.append(measured_cluster(load_cluster("8-v100"), profile))
    return {
        "plan": _plans(),
        "profile": [profile.to_json()],
        "links": [_links().to_json()],
        "cluster": [cluster.to_json() for cluster in clusters],
    }


def _plans() -> list[dict[str, Any]]:
    """A plan for four devices: as it is, and with measurements."""
    plan = _plan()
    trials = (
        Trial("best", plan.executed_nanoseconds, plan.memory_bytes, 5, 0.25, 0.125, 2**20),
        Trial("data parallelism", 2 * plan.time_nanoseconds, plan.memory_bytes, dropped="slower"),
    )
    measured = replace(plan, validation=Validation(1, trials, 0, ("no peak",)), within=0.25)
    return [plan.to_json(), measured.to_json()]


def _plan() -> Plan:
    tf.enable_graph_mode()
    tf.reset_default_graph()
    tf.init(devices=4, cluster="2x8-v100")
    values = tf.placeholder(tf.float32, [None, 64], name="values")
    weights = tf.get_variable("weights", [64, 32])
    hidden = tf.nn.relu(tf.matmul(values, weights))
    loss = tf.reduce_mean(tf.square(hidden), name="loss")
    tf.train.MomentumOptimizer(0.1, 0.9).minimize(loss)
    try:
        return tf.find_strategy("mini_time", batch_size=4096)
    finally:
        tf.shutdown()
        tf.reset_default_graph()


def _links() -> MeasuredLinks:
    """Links of two machines of two ranks."""
    times = [
        LinkTime(kind, size, 10_000 + 80 * size, 5 * size)
        for kind in ("allreduce", "allgather", "alltoall")
        for size in (2**12, 2**20, 2**22)
    ]
    level = MeasuredLevel(2, 2, True, tuple(times))
    setting = LinkSetting(("m1", "m2"), (2, 2), 2, "MPICH 5.0")
    return MeasuredLinks(setting, level, level, MeasuredPace(10**11, 10**10))


def _profile() -> Profile:
    """A profile of two ranks with one of each kind of measurement of `tensoropt profile`."""
    collectives = tuple(
        MeasuredCollective(kind, runs, (0,), size, size, 1000 + size, 0.125, 1)
        for kind, runs in (("allreduce", ""), ("allgather", "whole"), ("alltoall", "short"))
        for size in (64, 4096)
    )
    attributes = (("transpose_a", "False"),)
    operators = tuple(
        MeasuredOperator(
            OperatorWork(family, "float32", flops, 12_288, 2, type_, attributes, ((32, 32),)),
            *(100_000, 200_000, 0.25, 0),
        )
        for family, flops, type_ in (("contraction", 65_536, "MatMul"), ("default", 1024, "Relu"))
    )
    calls = (MeasuredCall((StepTraffic("allreduce", (0,), 4096, ""),), 3, 30_000),)
    return Profile(
        setting=Setting("a processor", 2, (2,), "2.18.1", "MPICH 5.0"),
        mesh=(2,),
        complete=True,
        collectives=collectives,
        overheads=Overheads(100, 800, 50_000),
        operators=operators,
        skipped={"0123": "While: OptionError: no"},
        steps=(MeasuredStep("0" * 64, 900_000, 500_000, 2_000, calls),),
    )
