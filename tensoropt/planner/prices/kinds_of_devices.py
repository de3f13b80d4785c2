"""The share of each kind of device in a step, and its wait for slower ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tensoropt.cost.cluster import Kind
from tensoropt.cost.model import ClusterCostModel
from tensoropt.graph.differentiation import differentiated_inputs
from tensoropt.graph.operator import TensorName
from tensoropt.parallel.strategy import Strategy
from tensoropt.plan.amounts import bytes_of
from tensoropt.plan.plan import Plan
from tensoropt.planner.request import Request
from tensoropt.problem.operators.local_work import computes, work_of_rank

__all__ = ["kind_notes", "stage_kind_notes"]


def kind_notes(
    strategy: Strategy, cost: ClusterCostModel, repeats: Mapping[str, int]
) -> tuple[str, ...]:
    """Return a note for each kind of device; none if all devices are as fast.

    A device waits as long as the slowest kind computes more than it. Waits for the network, which
    all devices have, do not count.

    Args:
        strategy: a strategy of the step's graph.
        cost: the cost model on the strategy's mesh.
        repeats: how often each operator runs that runs once for every microbatch.
    """
    cluster, mesh = cost.cluster, strategy.mesh
    if len(set(cluster.speeds(mesh.size))) == 1:
        return ()
    ranks: dict[Kind | None, list[int]] = {}
    for rank, kind in enumerate(cluster.kinds_of(mesh.size)):
        ranks.setdefault(kind, []).append(rank)
    busy = {kind: _busy(strategy, cost, repeats, alike[0]) for kind, alike in ranks.items()}
    longest = max(busy.values())
    return tuple(
        f"{_named(alike)} ({cluster.device.name if kind is None else kind.name}) "
        f"compute{'s' * (len(alike) == 1)} {_share(strategy, alike)}{busy[kind] / 1e6:.2f} ms a "
        f"step{_wait(longest - busy[kind])} (predicted)"
        for kind, alike in ranks.items()
    )


def stage_kind_notes(request: Request, plan: Plan) -> tuple[str, ...]:
    """Return a note for each stage of a plan; none if all devices are alike.

    A stage waits for the passes of other stages.
    """
    if not plan.cluster.kinds:
        return ()
    limits, kinds = request.limits(plan.devices), plan.cluster.kinds_of(plan.devices)
    notes = []
    for number, stage in enumerate(plan.stages):
        devices = sorted(plan.devices_of_stage(number))
        names = dict.fromkeys(
            plan.cluster.device.name if kind is None else kind.name
            for kind in map(kinds.__getitem__, devices)
        )
        busy = stage.busy_nanoseconds(plan.microbatches)
        wait = max(0, plan.executed_nanoseconds - busy)
        notes.append(
            f"{_named(devices)} ({' and '.join(names)}) run{'s' * (len(devices) == 1)} stage "
            f"{number} in {busy / 1e6:.2f} ms a step besides {wait / 1e6:.2f} ms of waiting for "
            f"other stages, with {bytes_of(stage.memory_bytes)} of "
            f"{bytes_of(min(limits[device] for device in devices))} (predicted)"
        )
    return tuple(notes)


def _wait(nanoseconds: int) -> str:
    """Return a device's wait in words; empty if it does not wait."""
    return (
        f" besides {nanoseconds / 1e6:.2f} ms of waiting for slower devices" if nanoseconds else ""
    )


def _busy(strategy: Strategy, cost: ClusterCostModel, repeats: Mapping[str, int], rank: int) -> int:
    """Return the nanoseconds of a step in which a device computes operators."""
    graph = strategy.graph
    differentiated = differentiated_inputs(graph)
    total = 0
    for operator in graph:
        name = operator.name
        if not computes(operator) or operator.is_constant or operator.gradient is not None:
            continue
        work = work_of_rank(
            operator,
            strategy.derivations[name],
            strategy.configurations[name],
            strategy.mesh,
            len(differentiated.get(name, ())),
            rank,
        )
        total += repeats.get(name, 1) * cost.operator_nanoseconds(work).total
    return total


def _share(strategy: Strategy, ranks: Iterable[int]) -> str:
    """Return the part of the batch that devices compute, in words; empty if it is not split."""
    for operator in strategy.graph:
        layout = strategy.output_slot(TensorName(operator.name, 0)).forward
        if operator.is_placeholder and layout.dims and layout.dims[0]:
            extent, mesh = operator.outputs[0].shape[0], strategy.mesh
            parts = {mesh.bounds(extent, layout.dims[0], rank) for rank in ranks}
            return f"{sum(end - start for start, end in parts)} of {extent} examples in "
    return ""


def _named(ranks: list[int]) -> str:
    """Return the numbers of devices in words."""
    if len(ranks) == 1:
        return f"device {ranks[0]}"
    first, last = ranks[0], ranks[-1]
    if last - first + 1 == len(ranks):
        return f"devices {first} to {last}"
    return f"devices {', '.join(map(str, ranks))}"
