"""The components of a step and their costs: what stages of a pipeline are made of."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tensoropt.cost.model import ClusterCostModel
from tensoropt.pipeline.atom_costs import AtomCosts
from tensoropt.pipeline.atomic import atomic_components
from tensoropt.pipeline.links import Links
from tensoropt.planner.request import Request

__all__ = ["StepParts"]


@dataclass(frozen=True, slots=True, eq=False)
class StepParts:
    """The components of a step on some devices.

    Attributes:
        costs: of the components.
        cost: the prices.
        links: between devices and machines.
        machines: how many.
    """

    costs: AtomCosts
    cost: ClusterCostModel
    links: Links
    machines: int

    @classmethod
    def of(cls, request: Request, devices: int) -> StepParts:
        """Of a request's step."""
        cluster = request.cluster_at(devices)
        machine = cluster.level_counts(devices)[-1]
        links = replace(Links.of(cluster), machine=machine)
        cost = request.cost_model(devices)
        atoms = atomic_components(request.graph, request.batch_placeholders)
        costs = AtomCosts(atoms, request.batch_placeholders, request.reads, cost)
        return cls(costs, cost, links, devices // machine)
