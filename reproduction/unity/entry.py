"""The plan that a user gets for a model on the simulated Summit: `find_strategy` in a dry run."""

from __future__ import annotations

from dataclasses import replace

import tensoropt as tf
from reproduction.unity.models import JointModel, minimized
from tensoropt.cost.cluster import load_cluster
from tensoropt.frontend.job.dry_run import DryRun, StepReached
from tensoropt.frontend.job.job import in_dry_run
from tensoropt.plan import Plan
from tensoropt.planner.request import Request

__all__ = ["CLUSTER", "planned", "request_of"]

CLUSTER = "summit"
_GAP = 0.01  # of the frontiers of other systems


def planned(model: JointModel, devices: int, search_seconds: float = 30.0) -> Plan:
    """The plan of `find_strategy` for a model's step, as ``tensoropt plan`` asks for it.

    Args:
        model: the model.
        devices: number of devices of the cluster; each has the model's examples.
        search_seconds: the option of `find_strategy`.
    """
    with in_dry_run(DryRun(devices, load_cluster(CLUSTER))):
        return _plan(model, devices, search_seconds)


def request_of(model: JointModel, devices: int, search_seconds: float = 30.0) -> Request:
    """The request that `find_strategy` makes of the same step, without dry runs; see `planned`."""
    try:
        with in_dry_run(DryRun(devices, load_cluster(CLUSTER), aim="profile")):
            _plan(model, devices, search_seconds)
    except StepReached as reached:
        request = reached.request
    return replace(
        request, dry_run_peak=None, stage_peak=None, epsilon=_GAP, search_seconds=search_seconds
    )


def _plan(model: JointModel, devices: int, search_seconds: float) -> Plan:
    with tf.Graph().as_default():
        tf.init()
        train = minimized(model)
        return tf.find_strategy(
            fetches=[train], batch_size=model.batch * devices, search_seconds=search_seconds
        )
