"""Each system's fastest step for a model on the test bed, or the reason why nothing fits."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from reproduction.entry import Script
from reproduction.rannc.megatron import TensorSplit, megatron
from reproduction.rannc.models import ANY_STAGES, OTHER_BLOCKS, WITHOUT_BLOCKS, Line
from reproduction.rannc.searches.alpa import alpa
from reproduction.rannc.searches.galvatron import LayerSplits, galvatron
from reproduction.rannc.searches.gpipe import gpipe
from reproduction.rannc.searches.rannc import form_stage, form_stage_dp
from reproduction.rannc.searches.without_blocks import without_blocks
from reproduction.rannc.testbed import (
    MACHINES,
    Phases,
    layers_of,
    script_of,
    step_of,
    testbed,
)
from tensoropt.errors import InfeasibleError, SearchSizeError
from tensoropt.pipeline.stages.frontier import pipeline_frontier
from tensoropt.pipeline.stages.pipeline import Pipeline, PipelineProblem
from tensoropt.plan import Plan

__all__ = ["computed", "load_kernels", "told"]

Found = Pipeline | TensorSplit | LayerSplits | Plan | tuple[int, int]

_ONE_MACHINE = 128  # examples
_ALPA_MICROBATCHES = (1, 8, 32)
_GPIPE_MICROBATCHES = 64  # GPipe's number for ResNets


def load_kernels() -> None:
    """Compile the kernels of the phases, or load them."""
    phases = Phases(step_of("1x64"), testbed(50.0, 32.0))
    problem = replace(phases.problem, machines=1, batch=8)
    form_stage(problem)
    pipeline_frontier(problem)
    without_blocks(replace(phases.summed(), machines=1, batch=8))


def computed(
    model: str,
    nvlink: float,
    systems: Sequence[str],
    search_seconds: float = 30.0,
    memory_gb: float = 32.0,
) -> Line:
    """The steps of some systems for one model.

    Args:
        model: name of the model.
        nvlink: GB/s between two devices.
        systems: names of systems; a system comes with its variants, whose names begin so.
        search_seconds: the option of `find_strategy`.
        memory_gb: memory of a device, of which `testbed` leaves a share out.

    Returns:
        JSON values; ``found`` has for each system the step and CPU seconds, or ``error`` if it
            finds nothing.
    """
    step = step_of(model)
    phases = Phases(step, testbed(nvlink, memory_gb))
    shared = sum(phases.seconds.values())  # CPU seconds that later problems share
    found: Line = {}
    script = script_of(model, nvlink, search_seconds, memory_gb)
    for name, find in _searches(model, phases, script):
        if name.split(",")[0] not in systems:
            continue
        batch = _ONE_MACHINE if name.endswith("one machine") else step.batch
        begun = time.process_time()
        try:
            found[name] = told(find(), batch)
        except (InfeasibleError, SearchSizeError) as error:
            found[name] = {"error": str(error)}
        found[name]["seconds"] = round(time.process_time() - begun, 2)
    return {
        "model": model,
        "nvlink": nvlink,
        "memory_gb": memory_gb,
        "systems": sorted(systems),
        "parameters": step.parameters,
        "operators": len(step.graph),
        "atoms": len(phases.atoms),
        "imbalance": round(phases.blocks.imbalance, 3),
        "longest_atom": round(phases.longest_atom, 3),
        "import_seconds": round(step.seconds, 1),
        "phases_seconds": round(shared, 2),
        "found": found,
    }


def _searches(
    model: str, phases: Phases, script: Script
) -> Iterator[tuple[str, Callable[[], Found]]]:
    yield "rannc", lambda: form_stage(phases.problem)
    yield ANY_STAGES, lambda: form_stage(phases.problem, fewest=False)
    yield "data parallelism", phases.data_parallel
    if model.startswith("resnet"):  # a ResNet's layers differ
        alone = phases.one_machine(_ONE_MACHINE)
        yield "rannc, one machine", lambda: form_stage(alone)
        any_alone = f"{ANY_STAGES}, one machine"
        yield any_alone, lambda: form_stage(alone, fewest=False)
        yield "gpipe, one machine", lambda: _gpipe_model(alone)
    else:
        layer = layers_of(phases.atoms)
        layers = phases.costs, layer, phases.links, MACHINES, phases.memory_limit
        yield "gpipe", lambda: gpipe(phases.grouped(layer))
        yield "megatron", lambda: megatron(*layers)
        yield "galvatron", lambda: galvatron(*layers)
        yield "alpa", lambda: alpa(phases.in_integer_programs(), _ALPA_MICROBATCHES)
    for blocks in OTHER_BLOCKS.get(model, ()):
        yield f"rannc, {blocks} blocks", lambda k=blocks: form_stage(phases.coarsened(k))  # type: ignore[misc]
    if model in WITHOUT_BLOCKS:
        yield "without blocks", lambda: without_blocks(phases.summed())
    yield "frontier", lambda: pipeline_frontier(phases.problem, ("1f1b",))[-1]
    yield "tensor split", lambda: script.plan(pipeline=False)
    yield "ours", script.plan


def _gpipe_model(problem: PipelineProblem) -> Pipeline:
    """A stage on each device of a machine, as balanced as blocks allow."""
    found = form_stage_dp(problem, problem.devices, 1, _GPIPE_MICROBATCHES)
    if found is None:
        raise InfeasibleError(
            f"{problem.devices} stages on as many devices fit {problem.memory_limit} bytes of "
            "each. Got none that do; use more devices or a smaller batch."
        )
    return found


def told(found: Found, batch: int) -> Line:
    """A step of a batch as JSON values."""
    if isinstance(found, Pipeline):
        pipeline = {
            "stages": [[each.first, each.last, each.devices] for each in found.stages],
            "recompute": [each.recompute for each in found.stages],
            "copies": found.copies,
            "microbatches": found.microbatches,
            "schedule": found.schedule,
        }
        return pipeline | _rate(batch, found.time, found.memory)
    if isinstance(found, TensorSplit):
        split = {"parts": found.parts, "recompute": found.recompute}
        return split | _rate(batch, found.time, found.memory)
    if isinstance(found, LayerSplits):
        trees = Counter(" in ".join(f"{way} {n}" for way, n in tree) for tree in found.trees)
        layers = {"layers": dict(trees), "microbatches": found.microbatches}
        return layers | _rate(batch, found.time, found.memory)
    if isinstance(found, Plan):
        return _plan(found, batch)
    return _rate(batch, *found)


def _plan(plan: Plan, batch: int) -> Line:
    """A plan of `find_strategy`: its predicted step and peak."""
    assert plan.peak_bytes is not None, "a plan's peak is checked"
    found = {
        "way": plan.way,
        "peak_is_estimated": plan.peak_is_estimated,
    }
    return found | _rate(batch, round(plan.predicted_step_seconds * 1e9), plan.peak_bytes)


def _rate(batch: int, nanoseconds: int, bytes_: int) -> Line:
    return {
        "examples_per_second": round(batch * 1e9 / nanoseconds, 2),
        "memory_gb": round(bytes_ / 2**30, 2),
    }
