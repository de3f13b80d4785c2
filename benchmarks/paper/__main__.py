"""``python -m benchmarks.paper``: rebuild the paper's Figures 6, 7 and 8 and its Table 3, and judge
what it says of them.

Every frontier is searched in a process of its own on a described cluster, and kept in
OUTPUT/results, so that a run that was interrupted goes on where it was; what other code computed is
computed again. Pictures and the page ``claims.md`` follow from those results alone. The last line
is one JSON object. Status 1 if some frontier could not be computed; a claim that does not hold is a
finding.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.paper.claims import Evidence, all_claims
from benchmarks.paper.page import documented, page
from benchmarks.paper.results import ROOT, Store, code_digest
from benchmarks.paper.tasks import Task, all_tasks, searches

__all__ = ["main"]

DOCUMENT = ROOT / "docs" / "paper-figures.md"


def main(arguments: Sequence[str] | None = None) -> int:
    """Compute what is missing, draw, and judge."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.paper", description=__doc__)
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "paper")
    parser.add_argument("--jobs", type=int, default=2, help="searches at a time")
    parser.add_argument("--limit", type=float, default=230.0, help="seconds for each search")
    parser.add_argument(
        "--begin-within",
        type=float,
        default=math.inf,
        help="seconds after which no search is begun; the next run goes on",
    )
    parser.add_argument("--fresh", action="store_true", help="compute everything again")
    parser.add_argument(
        "--as-found",
        action="store_true",
        help="compute nothing: use the results that are there, whatever code they are of",
    )
    parser.add_argument(
        "--document", action="store_true", help=f"write the claims into {DOCUMENT.name}, too"
    )
    options = parser.parse_args(arguments)
    store = Store(options.output / "results", code_digest(), options.limit, options.begin_within)
    tasks = all_tasks()
    failures: dict[Task, str] = {}
    if not options.as_found:
        if options.fresh:
            store.forget(tasks)
        failures |= store.compute(searches(), jobs=1)  # these are timed: nothing beside them
        failures |= store.compute([t for t in tasks if t not in failures], options.jobs)
    found = [store.load(task, whatever_code=options.as_found) for task in tasks]
    evidence = Evidence([result for result in found if result is not None], failures)
    claims = list(all_claims(evidence))
    from benchmarks.paper.drawing import draw  # Matplotlib: only where there is something to draw

    pictures = draw(evidence, options.output)
    path = options.output / "claims.md"
    path.write_text(page(claims, evidence, pictures, failures), encoding="utf-8")
    if options.document:
        there = sum(result is not None for result in found)
        basis = f"{there} of {len(tasks)} frontiers were computed" + (
            ", some of them perhaps by older code." if options.as_found else "."
        )
        text = documented(DOCUMENT.read_text(encoding="utf-8"), claims, basis)
        DOCUMENT.write_text(text, encoding="utf-8")
    for claim in claims:
        print(f"{claim.figure:8} {'yes' if claim.holds else 'NO ':3} {claim.claim}: {claim.why}")
    print(f"wrote {path}")
    print(json.dumps({"claims": [claim.to_json() for claim in claims]}))
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main())
