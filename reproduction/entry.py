"""The plan that a user gets for a step on a described cluster, and the request behind it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import tensoropt as tf
from tensoropt.cost.cluster import Cluster
from tensoropt.frontend.job.dry_run import DryRun, StepReached
from tensoropt.frontend.job.job import in_dry_run
from tensoropt.plan import Plan
from tensoropt.planner.kernels import load_kernels
from tensoropt.planner.request import Request
from tensoropt.search.watch import Watch

__all__ = ["Script"]

_GAP = 0.01  # of the frontiers of other systems
_load_kernels_once = cache(load_kernels)


@dataclass(frozen=True, slots=True)
class Script:
    """A script that trains a model on a described cluster.

    Attributes:
        train: makes the step in the default graph and returns its training operator.
        batch: number of examples of a step.
        devices: number of devices of the cluster.
        cluster: the cluster.
        search_seconds: the option of `find_strategy`, here in CPU seconds of all threads, so that
            a plan does not depend on the load of the machine.
    """

    train: Callable[[], Any]
    batch: int
    devices: int
    cluster: Cluster
    search_seconds: float = 30.0

    def plan(self, **options: Any) -> Plan:
        """The plan of `find_strategy`, as ``tensoropt plan`` asks for it.

        Args:
            options: further options of `find_strategy`.

        Raises:
            InfeasibleError: if no strategy fits the memory of a device.
        """
        with in_dry_run(DryRun(self.devices, self.cluster)):
            return self._planned(options)

    def request(self) -> Request:
        """The request that `find_strategy` makes of the same step, without dry runs."""
        try:
            with in_dry_run(DryRun(self.devices, self.cluster, aim="profile")):
                self._planned({})
        except StepReached as reached:
            request = reached.request
        return replace(
            request,
            dry_run_peak=None,
            stage_peak=None,
            epsilon=_GAP,
            search_seconds=self.search_seconds,
        )

    def _planned(self, options: dict[str, Any]) -> Plan:
        _load_kernels_once()  # else a search's time would end while they are compiled
        with tf.Graph().as_default(), Watch(clock=time.process_time):
            tf.init()
            asked = {"search_seconds": self.search_seconds, **options}
            train = self.train()
            plan: Plan = tf.find_strategy(fetches=[train], batch_size=self.batch, **asked)
            return plan
