"""``python -m benchmarks.pipeline``: stages of enlarged models as RaNNC and GPipe find them.

For each model the phases' CPU seconds, kernels loaded before, how balanced its blocks are, and the
predicted examples per second of RaNNC's own search and of GPipe's equal stages on the RaNNC paper's
test bed, and of "ours", pipelines whose stages are split by frontier tracking; with ``--frontier``
the fastest of all pipelines of replicated stages, with ``--without-blocks`` the variant of section
IV-C. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from benchmarks.pipeline.testbed import Phases, layers_of, step_of, testbed
from tensoropt.errors import InfeasibleError
from tensoropt.pipeline.stages.frontier import pipeline_frontier
from tensoropt.pipeline.stages.gpipe import gpipe
from tensoropt.pipeline.stages.pipeline import Pipeline
from tensoropt.pipeline.stages.rannc import form_stage
from tensoropt.pipeline.without_blocks import without_blocks

__all__: list[str] = []

Line = dict[str, Any]
MODELS = ["24x1024", "96x1024", "96x2048", "resnet152x8"]


def main() -> None:
    """Find the stages of what is asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pipeline", description=__doc__)
    parser.add_argument(
        "models", nargs="*", default=MODELS, help="BERTs as layers x width, or resnet152x8"
    )
    parser.add_argument("--nvlink", type=float, default=50.0, help="GB/s between two devices")
    parser.add_argument("--frontier", action="store_true")
    parser.add_argument("--without-blocks", action="store_true")
    options = parser.parse_args()
    _load_kernels()
    lines = [_line(model, options) for model in options.models]
    print(json.dumps({"benchmark": "pipeline", "nvlink": options.nvlink, "models": lines}))


def _load_kernels() -> None:
    """Compile what the phases run, or load it."""
    phases = Phases(step_of("1x64"), testbed(50.0))
    problem = replace(phases.problem, machines=1, batch=8)
    form_stage(problem)
    pipeline_frontier(problem)
    without_blocks(replace(phases.summed(), machines=1, batch=8))
    phases.split()


def _line(model: str, options: argparse.Namespace) -> Line:
    step = step_of(model)
    phases = Phases(step, testbed(options.nvlink))
    line: Line = {
        "model": model,
        "parameters": step.parameters,
        "operators": len(step.graph),
        "atoms": len(phases.atoms),
        "import_seconds": round(step.seconds, 1),
        "imbalance": round(phases.blocks.imbalance, 3),
        "longest_atom": round(phases.longest_atom, 3),
        "found": {},
    }
    print(
        f"{model}: {step.parameters / 1e6:,.0f} million parameters, {len(step.graph)} "
        f"operators, {len(phases.atoms)} atomic components; longest block "
        f"{phases.blocks.imbalance:.2f} of the mean, longest component {phases.longest_atom:.2f}",
        flush=True,
    )
    finds: dict[str, Callable[[], Pipeline]] = {"rannc": lambda: form_stage(phases.problem)}
    if not model.startswith("resnet"):  # whose layers are unlike
        finds["gpipe"] = lambda: gpipe(phases.grouped(layers_of(phases.atoms)))
    if options.without_blocks:
        finds["without blocks"] = lambda: without_blocks(phases.summed())
    if options.frontier:
        finds["frontier"] = lambda: pipeline_frontier(phases.problem, ("1f1b",))[-1]
    finds["ours"] = lambda: phases.split()[-1]
    for name, find in finds.items():
        begun = time.process_time()
        try:
            found = _found(find(), step.batch)
        except InfeasibleError as error:
            found = {"error": str(error)}
        found["seconds"] = round(time.process_time() - begun, 2)
        line["found"][name] = found
        print(f"  {name}: {_words(found)}", flush=True)
    phases.seconds["stages"] = line["found"]["rannc"]["seconds"]
    line["seconds"] = {phase: round(seconds, 2) for phase, seconds in phases.seconds.items()}
    print(f"  phases: {sum(phases.seconds.values()):.2f} s, {line['seconds']}", flush=True)
    return line


def _found(pipeline: Pipeline, batch: int) -> Line:
    return {
        "stages": [[each.first, each.last, each.devices] for each in pipeline.stages],
        "recompute": [each.recompute for each in pipeline.stages],
        "copies": pipeline.copies,
        "microbatches": pipeline.microbatches,
        "schedule": pipeline.schedule,
        "examples_per_second": round(batch * 1e9 / pipeline.time, 2),
        "simulated_examples_per_second": round(batch * 1e9 / pipeline.simulated_time, 2),
        "memory_gb": round(pipeline.memory / 2**30, 2),
    }


def _words(found: Line) -> str:
    if "error" in found:
        return str(found["error"])
    devices = " ".join(str(devices) for _, _, devices in found["stages"])
    return (
        f"{found['examples_per_second']} examples/s, {len(found['stages'])} stages on {devices} "
        f"devices, {found['copies']} copies, {found['microbatches']} microbatches, "
        f"{found['schedule']}, {found['memory_gb']} GB; {found['seconds']} s"
    )


if __name__ == "__main__":
    main()
