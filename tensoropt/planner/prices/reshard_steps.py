"""The steps of reshardings: those that a plan records, or the cheapest."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tensoropt.cost.model import ClusterCostModel
from tensoropt.parallel.layout import Layout
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.resharding import Price, ReshardStep, plan_reshard, steps_of_shape
from tensoropt.plan.plan import Plan
from tensoropt.plan.recorded_resharding import RecordedResharding
from tensoropt.planner.meshes import cluster_on
from tensoropt.tensor_spec import TensorSpec

__all__ = ["ReshardSteps", "step_planner"]

Ends = tuple[tuple[int, ...], int, Layout, Layout]
"""A resharding: the shape, the bytes of an element, the source and the target."""


class ReshardSteps:
    """A function (shape, dtype, source, target) that returns the steps of a resharding.

    The steps of a resharding are planned once.

    Args:
        mesh: the devices.
        price: the cost of a step, for reshardings that are not recorded.
        recorded: reshardings whose steps are known.
    """

    def __init__(
        self, mesh: Mesh, price: Price, recorded: Iterable[RecordedResharding] = ()
    ) -> None:
        self._mesh = mesh
        self._price = price
        self._steps: dict[Ends, tuple[ReshardStep, ...]] = {
            (known.shape, known.itemsize, known.source, known.target): steps_of_shape(
                known.steps, known.shape, mesh
            )
            for known in recorded
        }

    def __call__(
        self, shape: Sequence[int], dtype: str, source: Layout, target: Layout
    ) -> tuple[ReshardStep, ...]:
        """Return the steps; none if the layouts are the same."""
        if source == target:
            return ()
        ends = (tuple(shape), TensorSpec((), dtype).itemsize, source, target)
        if ends not in self._steps:
            whole, itemsize, *_ = ends
            self._steps[ends] = plan_reshard(
                self._mesh, whole, itemsize, source, target, self._price
            )
        return self._steps[ends]

    def recorded(self) -> tuple[RecordedResharding, ...]:
        """Return the known reshardings, followed by the planned ones in their order."""
        return tuple(RecordedResharding(*ends, steps) for ends, steps in self._steps.items())


def step_planner(plan: Plan, stage: int | None = None) -> ReshardSteps:
    """Return the steps of reshardings under a plan.

    Recorded reshardings have the recorded steps. A plan without a dry run does not record all
    reshardings of its backward pass; a plan of stages records none; and a fetch of a split tensor
    is not recorded either. These take the cheapest steps on the plan's cluster, which depend on the
    plan alone. So all ranks use the same steps.

    Args:
        plan: the plan that runs.
        stage: the stage whose ranks reshard; None without stages.
    """
    mesh = plan.mesh if stage is None else plan.stages[stage].mesh
    price = ClusterCostModel(cluster_on(plan.cluster, mesh), mesh).collective_nanoseconds
    return ReshardSteps(mesh, price, plan.reshardings if stage is None else ())
