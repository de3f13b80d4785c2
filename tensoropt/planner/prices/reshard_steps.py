"""Which steps a resharding takes: those that a plan records, else the cheapest."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tensoropt.cost.model import ClusterCostModel
from tensoropt.parallel.layout import Layout
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.resharding import Price, ReshardStep, plan_reshard
from tensoropt.plan.plan import Plan
from tensoropt.plan.recorded_resharding import RecordedResharding
from tensoropt.planner.meshes import cluster_on
from tensoropt.tensor_spec import TensorSpec

__all__ = ["ReshardSteps", "step_planner"]

Ends = tuple[tuple[int, ...], int, Layout, Layout]
"""Shape, bytes of an element, source and target."""


class ReshardSteps:
    """A function (shape, dtype, source, target) to the steps of a resharding, each found once.

    Args:
        mesh: the devices.
        price: what a step costs; of those that are not recorded the cheapest are taken.
        recorded: steps that are known.
    """

    def __init__(
        self, mesh: Mesh, price: Price, recorded: Iterable[RecordedResharding] = ()
    ) -> None:
        self._mesh = mesh
        self._price = price
        self._steps: dict[Ends, tuple[ReshardStep, ...]] = {
            (each.shape, each.itemsize, each.source, each.target): each.steps for each in recorded
        }

    def __call__(
        self, shape: Sequence[int], dtype: str, source: Layout, target: Layout
    ) -> tuple[ReshardStep, ...]:
        """The steps; none if the layouts are the same."""
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
        """All that was asked for so far, in that order, after what was known."""
        return tuple(RecordedResharding(*ends, steps) for ends, steps in self._steps.items())


def step_planner(plan: Plan, stage: int | None = None) -> ReshardSteps:
    """The steps of a plan: those that it records, else the cheapest on its own cluster.

    A step of the plan's graph runs what is recorded; without a dry run some reshardings of its
    backward pass are not. What else is run, such as a fetch of a tensor that is split, depends on
    the plan alone, so all ranks find the same steps. So do those of a stage, of which none are
    recorded.

    Args:
        plan: what is run.
        stage: between whose ranks; None where there are no stages.
    """
    mesh = plan.mesh if stage is None else plan.stages[stage].mesh
    price = ClusterCostModel(cluster_on(plan.cluster, mesh), mesh).collective_nanoseconds
    return ReshardSteps(mesh, price, plan.reshardings if stage is None else ())
