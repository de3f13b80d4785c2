"""``python -m reproduction.rannc``: the RaNNC paper's evaluation on its simulated test bed.

For each model the program predicts the examples per second of data parallelism, of Megatron's
splits of tensors and of searched splits without a pipeline, of GPipe, of RaNNC's own search and of
ours: pipelines whose stages are split by frontier tracking. ``--systems`` asks for some of them, or
for others: "frontier", the fastest pipeline of replicated stages, and RaNNC's search of any number
of stages. Seconds are CPU seconds with kernels loaded. Then the program judges the paper's claims;
a claim that does not hold is a finding, not an error. The last line is one JSON
object.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

from reproduction.rannc.claims import all_claims, largest
from reproduction.rannc.models import ALL, ANY_STAGES, EVERY, QUICK, Line
from reproduction.rannc.systems import computed, load_kernels
from reproduction.rannc.tables import claims_table, coarsening, throughputs, told

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Search for the pipelines, and judge the claims."""
    parser = argparse.ArgumentParser(prog="python -m reproduction.rannc", description=__doc__)
    parser.add_argument(
        "models", nargs="*", help="BERTs as layers x width, or resnet152x8; all if left out"
    )
    parser.add_argument("--quick", action="store_true", help=f"only {' '.join(QUICK)}")
    parser.add_argument("--nvlink", type=float, default=50.0, help="GB/s between two devices")
    every = ", ".join((*EVERY, ANY_STAGES, "frontier"))
    parser.add_argument("--systems", nargs="+", default=EVERY, help=every)
    parser.add_argument("--memory", type=float, default=32.0, help="GB of a device")
    parser.add_argument("--search-seconds", type=float, default=120.0, help="of find_strategy")
    parser.add_argument("--jobs", type=int, default=2, help="models at a time")
    parser.add_argument(
        "--results",
        type=Path,
        help="a file of results, one a line, to which new ones are added; what it has for these "
        "links, memory and systems is not searched again, so that a run that was interrupted goes "
        "on",
    )
    options = parser.parse_args(arguments)
    models = options.models or (QUICK if options.quick else ALL)
    known = {line["model"]: line for line in _kept(options)}
    missing = [model for model in models if model not in known]
    for line in _computed(missing, options):
        known[line["model"]] = line
        if options.results is not None:
            with options.results.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
    lines = [known[model] for model in models]
    for line in lines:
        print(told(line))
    claims = all_claims(lines)
    print(f"\n{throughputs(lines)}\n\n{coarsening(lines)}\n\n{claims_table(claims)}\n")
    seconds = {
        line["model"]: {"phases": line["phases_seconds"]}
        | {name: found["seconds"] for name, found in line["found"].items()}
        for line in lines
    }
    print(
        json.dumps(
            {
                "claims": [claim.to_json() for claim in claims],
                "largest": largest(lines),
                "search_seconds": seconds,
                "nvlink": options.nvlink,
                "memory_gb": options.memory,
                "models": lines,
            }
        )
    )


def _kept(options: argparse.Namespace) -> Iterator[Line]:
    """The lines of the file of results that are of the same test bed and systems."""
    path, asked = options.results, (options.nvlink, options.memory, sorted(options.systems))
    if path is not None and path.exists():
        for text in path.read_text(encoding="utf-8").splitlines():
            line = json.loads(text)
            if (line["nvlink"], line["memory_gb"], line["systems"]) == asked:
                yield line


def _computed(models: Sequence[str], options: argparse.Namespace) -> Iterator[Line]:
    """The lines of the models, in the order in which they are finished."""
    if not models:
        return
    workers = min(options.jobs, len(models))
    with ProcessPoolExecutor(workers, get_context("spawn"), load_kernels) as pool:
        asked = options.nvlink, options.systems, options.search_seconds, options.memory
        tasks = [pool.submit(computed, each, *asked) for each in models]
        for task in as_completed(tasks):
            line = task.result()
            print(f"{line['model']} done", flush=True)
            yield line


if __name__ == "__main__":
    main()
