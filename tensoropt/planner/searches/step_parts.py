"""The components of a step and their costs, from which stages are made."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tensoropt.cost.model import ClusterCostModel
from tensoropt.pipeline.atom_costs import AtomCosts
from tensoropt.pipeline.atomic import atomic_components
from tensoropt.pipeline.links import Links
from tensoropt.pipeline.stages.frontier import stage_sizes
from tensoropt.planner.request import Request

__all__ = ["LEAST_DIVIDING", "StepParts"]

LEAST_DIVIDING = 2
"""The devices of the smallest stage in which a dimension can be divided."""

_ALL_SIZES = 8
"""On machines with at most this number of devices, a stage may have any number of them, if the
number of stages is given."""


@dataclass(frozen=True, slots=True, eq=False)
class StepParts:
    """The components of a step on some devices.

    Attributes:
        costs: the costs of the components.
        cost: the cost model.
        links: the links between devices and between machines.
        machines: the number of machines.
        least: the fewest devices of a stage on a machine.
    """

    costs: AtomCosts
    cost: ClusterCostModel
    links: Links
    machines: int
    least: int = 1

    @classmethod
    def of(cls, request: Request, devices: int) -> StepParts:
        """Return the components of a request's step on a number of devices."""
        cluster = request.cluster_at(devices)
        machine = cluster.level_counts(devices)[-1]
        links = replace(Links.of(cluster), machine=machine)
        cost = request.cost_model(devices)
        atoms = atomic_components(request.graph, request.batch_placeholders)
        costs = AtomCosts(atoms, request.batch_placeholders, request.reads, cost)
        least = LEAST_DIVIDING if request.pins.divides else 1
        return cls(costs, cost, links, devices // machine, least)

    def stage_sizes(self, stages: tuple[int, int]) -> list[int]:
        """Return the numbers of devices that a stage may have.

        Args:
            stages: the fewest and the most stages.
        """
        machine, (fewest, most) = self.links.machine, stages
        sizes = set(stage_sizes(machine, self.machines))
        if fewest == most and machine <= _ALL_SIZES:
            sizes.update(range(1, machine + 1))
        most_devices = self.machines * machine - self.least * (fewest - 1)
        return sorted(size for size in sizes if self.least <= size <= most_devices)
