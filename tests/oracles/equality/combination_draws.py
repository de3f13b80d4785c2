"""Random plans that combine substitutions, microbatches, stages, branches and recomputation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tensoropt.cost.cluster import Cluster
from tensoropt.graph.operator import Graph
from tensoropt.parallel.choices.choices import configurations_of, strategy_choices
from tensoropt.parallel.configuration import Configuration
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.strategy import derivation_under
from tensoropt.plan import Plan
from tensoropt.plan.operator_plan import OperatorPlan, StagePlan
from tensoropt.planner.plans.from_frontier import operator_plan
from tensoropt.transformations.microbatches.batch_cut import BatchCut
from tensoropt.transformations.microbatches.cut import cut_along_batch
from tensoropt.transformations.microbatches.parts import graph_of_one
from tensoropt.transformations.rewritten.application import Rewrite, rewritten
from tensoropt.transformations.staged.assignment import SHARED, assign
from tensoropt.transformations.staged.order_of_passes import SCHEDULES, Schedule
from tests.oracles.equality.draws import KEPT_SHARES
from tests.oracles.equality.engine import Script, draw_kept
from tests.oracles.equality.rewrites import draw_rewrites

__all__ = ["Combination", "draw_combination"]

_MICROBATCHES = (1, 2, 3, 4)
_MOST_STAGES = 4
_MOVES_ON = 0.15
"""Probability that an operator begins a later stage than its inputs."""


@dataclass(frozen=True, slots=True, eq=False)
class Combination:
    """A plan drawn at random.

    Attributes:
        plan: the plan, made without a search; its times and memory have no meaning.
        spaces: the spaces that the plan combines.
        refused: a substitution that was drawn as well, but excludes the plan's microbatches; empty
            if there is none.
    """

    plan: Plan
    spaces: frozenset[str]
    refused: str


@dataclass(frozen=True, slots=True, eq=False)
class _Step:
    """A step after substitutions, and its division into microbatches."""

    graph: Graph
    rewrites: tuple[Rewrite, ...]
    cut: BatchCut
    batch: frozenset[str]


def draw_combination(
    script: Script, devices: int, cluster: Cluster, random: np.random.Generator
) -> Combination:
    """Draw a plan for a script.

    It draws whether to substitute, the number of microbatches, whether the devices are one mesh,
    stages or branches, and a strategy for each mesh.
    """
    rewrites: tuple[Rewrite, ...] = ()
    if random.random() < 0.8:
        rewrites = draw_rewrites(script, random).rewrites
    examples = next(iter(script.shapes.values()))[0]
    microbatches = int(random.choice([n for n in _MICROBATCHES if examples % n == 0]))
    step, refused = _step(script, rewrites, microbatches)
    microbatches = step.cut.microbatches
    form = str(random.choice(["whole", "stages", "branches"], p=[0.3, 0.35, 0.35]))
    share = float(random.choice(KEPT_SHARES))
    if form == "whole":
        mesh = Mesh.of(devices)
        operators = _operators(step, [mesh], {}, share, random)
        stages: tuple[StagePlan, ...] = ()
        schedule: Schedule | None = None
        copies = 1
    else:
        copies = 2 if devices % 2 == 0 and devices > 2 and random.random() < 0.25 else 1
        sizes = [copies * size for size in _sizes(devices // copies, random)]
        meshes = [Mesh.of(size) for size in sizes]
        stage_of = _stage_of(step.cut, len(sizes), form, random)
        operators = _operators(step, meshes, stage_of, share, random)
        stages = tuple(
            StagePlan(
                mesh.axes,
                tuple(each.name for each in operators if stage_of[each.name] == number),
                *(1, 1, 1, 1),
                recompute=bool(random.random() < 0.4),
            )
            for number, mesh in enumerate(meshes)
        )
        schedules: list[Schedule] = [*SCHEDULES]
        if form == "branches":
            schedules.append("side_by_side")
        schedule = schedules[int(random.integers(len(schedules)))]
    plan = _plan(script, step, devices, cluster, operators, microbatches)
    plan = replace(plan, stages=stages, schedule=schedule, copies=copies)
    return Combination(Plan.from_json(plan.to_json()), _spaces(plan, form), refused)


def _step(script: Script, rewrites: tuple[Rewrite, ...], microbatches: int) -> tuple[_Step, str]:
    """Apply as many of the substitutions as leave a step that can be cut into microbatches; return
    the step and the first substitution that does not.

    A script that mixes examples is computed at once.
    """
    batch = frozenset(script.shapes)
    refused = ""
    if cut_along_batch(script.imported(), batch, microbatches).refusals:
        microbatches = 1
    while True:
        graph = rewritten(script.imported(), rewrites, [script.train])
        cut = cut_along_batch(graph, batch, microbatches)
        if not cut.refusals:
            return _Step(graph, rewrites, cut, batch), refused
        *kept, last = rewrites
        rewrites, refused = tuple(kept), last.substitution


def _sizes(devices: int, random: np.random.Generator) -> list[int]:
    """The numbers of devices of two to four stages."""
    stages = int(random.integers(2, min(_MOST_STAGES, devices) + 1))
    cuts = np.sort(random.choice(np.arange(1, devices), stages - 1, replace=False))
    return [int(size) for size in np.diff([0, *cuts, devices])]


def _stage_of(cut: BatchCut, stages: int, form: str, random: np.random.Generator) -> dict[str, int]:
    """The stage of every operator. Stages follow each other, or are branches; a branch begins in
    any stage and continues in the same or a later one."""
    names = [name for name in cut.indices if not cut.graph[name].is_placeholder]
    own: dict[str, int] = {}
    if form == "stages":
        cuts = np.sort(random.random(stages - 1))
        places = np.searchsorted(cuts, np.linspace(0, 1, len(names)), side="right")
        own = dict(zip(names, map(int, places), strict=True))
    else:
        for name in names:
            read = [own[each] for each in cut.graph[name].predecessors if each in own]
            if not read:
                own[name] = int(random.integers(stages))
            else:
                own[name] = max(read)
            if random.random() < _MOVES_ON:
                own[name] = int(random.integers(own[name], stages))
    own[names[-1]] = stages - 1
    return {**assign(cut, own), **own}


def _operators(
    step: _Step,
    meshes: Sequence[Mesh],
    stage_of: Mapping[str, int],
    share: float,
    random: np.random.Generator,
) -> tuple[OperatorPlan, ...]:
    """The operators of a plan; each has a configuration of a strategy of its stage's mesh."""
    graph = graph_of_one(step.cut)
    drawn: list[dict[str, Configuration]] = []
    for mesh in meshes:
        choices = strategy_choices(graph, mesh, step.batch)
        numbers = [int(random.integers(len(group.options))) for group in choices]
        kept = draw_kept(choices, share, random)
        found = configurations_of(choices, numbers)
        drawn.append({name: replace(found[name], kept=kept[name]) for name in found})
    made = []
    for operator in graph:
        stage = stage_of.get(operator.name, SHARED) if stage_of else 0
        if stage == SHARED or operator.is_constant or operator.name not in drawn[stage]:
            continue
        configuration = drawn[stage][operator.name]
        derivation = derivation_under(operator, configuration)
        mesh = meshes[stage]
        made.append(operator_plan(operator, derivation, configuration, mesh, 0, 0, (), ""))
    return tuple(made)


def _plan(
    script: Script,
    step: _Step,
    devices: int,
    cluster: Cluster,
    operators: tuple[OperatorPlan, ...],
    microbatches: int,
) -> Plan:
    return Plan(
        option="mini_time",
        devices=devices,
        mesh_axes=Mesh.of(devices).axes,
        cluster=cluster,
        graph_digest=script.imported().digest(),
        roots=(script.train,),
        shapes=script.shapes,
        batch_placeholders=tuple(sorted(step.batch)),
        operators=operators,
        time_nanoseconds=1,
        memory_bytes=1,
        memory_limit_bytes=None,
        frontier=((1, 1),),
        exact=False,
        executed_nanoseconds=1,
        network_nanoseconds=0,
        microbatches=microbatches,
        rewrites=step.rewrites,
    )


def _spaces(plan: Plan, form: str) -> frozenset[str]:
    """The spaces that a plan combines."""
    found = {
        "rewrites": bool(plan.rewrites),
        "microbatches": plan.microbatches > 1,
        form: form != "whole",
        "recomputed stages": any(stage.recompute for stage in plan.stages),
        "less kept": any(operator.kept != "both" for operator in plan.operators),
        "copies": plan.copies > 1,
    }
    return frozenset(name for name, is_there in found.items() if is_there)
