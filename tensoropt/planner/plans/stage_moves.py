"""The moves of tensors in a pipeline: within its stages, and between them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from tensoropt.cost.cluster import Cluster
from tensoropt.cost.model import ClusterCostModel
from tensoropt.graph.differentiation import differentiated_inputs
from tensoropt.graph.operator import Graph, TensorName
from tensoropt.parallel.configuration import Configuration
from tensoropt.parallel.sparse import known_shape
from tensoropt.parallel.strategy import Strategy
from tensoropt.pipeline.links import Links
from tensoropt.plan.details import Move, MoveStep
from tensoropt.plan.plan import Plan
from tensoropt.planner.meshes import cluster_on
from tensoropt.planner.prices.step_time import step_time
from tensoropt.planner.request import Request
from tensoropt.transformations.microbatches.batch_cut import BatchCut
from tensoropt.transformations.microbatches.parts import graph_of_one

__all__ = ["stage_moves"]


def stage_moves(request: Request, plan: Plan, cut: BatchCut) -> tuple[Move, ...]:
    """Return the moves of a step in stages.

    Stages work, and communicate, at the same time, so the times of all moves together are more than
    the time of the step in the network.
    """
    graph = graph_of_one(cut)
    repeats = {name: cut.microbatches for name, index in cut.indices.items() if index is not None}
    strategies = [_strategy(request, plan, graph, number) for number in range(len(plan.stages))]
    moves: list[Move] = []
    for number, (stage, strategy) in enumerate(zip(plan.stages, strategies, strict=True)):
        cost = ClusterCostModel(_cluster_of(plan, number), strategy.mesh)
        within = frozenset(stage.operators)
        time = step_time(strategy, cost, None, request.reads, repeats, within)
        moves += (replace(move, stage=number) for move in time.moves)
    return (*moves, *_messages(plan, graph, strategies, repeats))


def _strategy(request: Request, plan: Plan, graph: Graph, number: int) -> Strategy:
    """Return the strategy of a stage; operators of other stages are whole in it."""
    members = frozenset(plan.stages[number].operators)
    planned = {
        operator.name: Configuration(operator.splits, operator.kept)
        for operator in plan.operators
        if operator.name in members
    }
    return Strategy(graph, plan.stages[number].mesh, planned, request.batch_placeholders)


def _cluster_of(plan: Plan, number: int) -> Cluster:
    """Return the cluster of a stage's devices: as many machines as its copies take."""
    mesh = plan.stages[number].mesh
    *outer, inner = plan.cluster.levels
    within = min(mesh.size // plan.copies, inner.count or mesh.size)
    counts = [mesh.size // within, *[1] * (len(outer) - 1)] if outer else []
    levels = tuple(replace(level, count=n) for level, n in zip(outer, counts, strict=True))
    if not outer:
        within = mesh.size
    speeds = plan.cluster.speeds(plan.devices)
    slowest = min(speeds[device] for device in plan.devices_of_stage(number))
    levels = (*levels, replace(inner, count=within))
    cluster = replace(plan.cluster, levels=levels, kinds=())
    if plan.cluster.kinds:
        cluster = cluster.alike(mesh.size, slowest)
    return cluster_on(cluster, mesh)


def _messages(
    plan: Plan, graph: Graph, strategies: Sequence[Strategy], repeats: Mapping[str, int]
) -> Iterator[Move]:
    """Yield the messages between stages: a tensor to each stage that reads it, and its gradient."""
    links, stage_of = Links.of(plan.cluster), plan.stage_of
    differentiated = differentiated_inputs(graph)
    readers: dict[tuple[TensorName, int], list[str]] = {}
    back: set[tuple[TensorName, int]] = set()
    for operator in graph:
        stage = stage_of.get(operator.name)
        for number, tensor in enumerate(operator.inputs):
            maker = stage_of.get(tensor.operator)
            if None in (stage, maker) or stage == maker or operator.gradient is not None:
                continue
            assert stage is not None, "it is in a stage"
            readers.setdefault((tensor, stage), []).append(operator.name)
            if number in differentiated.get(operator.name, ()):
                back.add((tensor, stage))
    for (tensor, stage), names in readers.items():
        maker = stage_of[tensor.operator]
        size = _bytes(strategies[maker], graph, tensor)
        times = repeats.get(tensor.operator, 1)
        for sender, receiver in ((maker, stage), *([(stage, maker)] * ((tensor, stage) in back))):
            across = _machines(plan, sender, links) != _machines(plan, receiver, links)
            devices = plan.stages[sender].mesh.size // plan.copies
            time = links.send_nanoseconds(size, devices, across, 1)
            if time:
                step = (MoveStep("message", (), size),)
                source = (tensor.operator,)
                move = Move(
                    "between stages", source, tuple(names), step, times, times * time, sender
                )
                yield move if sender == maker else replace(move, purpose="back between stages")


def _bytes(strategy: Strategy, graph: Graph, tensor: TensorName) -> int:
    """Return the bytes of a tensor on one device of the stage that makes it."""
    spec, layout = graph[tensor.operator].value_spec(tensor.index), strategy.output_slot(tensor)
    return layout.forward.local_elements(known_shape(spec.shape), strategy.mesh) * spec.itemsize


def _machines(plan: Plan, stage: int, links: Links) -> set[int]:
    """Return the machines of a stage in the first copy."""
    devices = plan.devices_of_stage(stage)[: plan.stages[stage].mesh.size // plan.copies]
    return {device // links.machine for device in devices}
