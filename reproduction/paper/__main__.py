"""``python -m reproduction.paper``: the TensorOpt paper's Figures 6, 7 and 8 and Table 3, rebuilt.

The program judges each claim that the paper makes about these figures. Frontiers are searched on
described clusters, in processes of their own, and kept in OUTPUT/results, so that an interrupted
run can continue. Results of other code are computed again. Pictures and the page ``claims.md``
follow from the results alone. The last line is one JSON object. The status is 1 if a frontier could
not be computed, except those of eliminations alone. A claim that does not hold is a finding, not an
error.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from reproduction.paper.claims import Claim, Evidence, all_claims
from reproduction.paper.page import documented, page
from reproduction.paper.results import ROOT, Store, code_digest
from reproduction.paper.tasks import (
    SENSITIVITY,
    Task,
    all_tasks,
    eliminations,
    searches,
    sensitivity,
)

__all__ = ["main"]

_BATCH = 8  # tasks of a process, which imports TensorFlow and a model once
DOCUMENT = ROOT / "docs" / "paper-figures.md"


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m reproduction.paper", description=__doc__)
    add = parser.add_argument
    add("--output", type=Path, default=ROOT / "build" / "paper")
    add("--jobs", type=int, default=2, help="searches at a time")
    add("--limit", type=float, default=230.0, help="seconds for each search")
    begin = "seconds after which no search begins; the next run continues"
    add("--begin-within", type=float, default=math.inf, help=begin)
    fixed = "do not judge again with links a quarter slower and faster"
    add("--no-sensitivity", dest="sensitivity", action="store_false", help=fixed)
    add("--fresh", action="store_true", help="compute all results again")
    kept = "compute nothing: use the results of earlier runs, also those of other code"
    add("--as-found", action="store_true", help=kept)
    add("--document", action="store_true", help=f"also write the claims into {DOCUMENT.name}")
    return parser.parse_args(arguments)


def _computed(store: Store, options: argparse.Namespace) -> dict[Task, str]:
    """Compute missing results; return the tasks without a result, with the reasons."""
    tasks = all_tasks()
    if options.as_found:
        return {task: why for task in tasks if (why := store.failure(task)) is not None}
    if options.fresh:
        store.forget(tasks)
    failures = store.compute((*searches(), *eliminations()), jobs=1)  # timed searches run alone
    others = [task for task in tasks if task not in failures]
    failures |= store.compute(others, options.jobs, _BATCH)
    if options.sensitivity:
        others = [task for links in SENSITIVITY for task in sensitivity(links).values()]
        store.compute(others, options.jobs, _BATCH)
    return failures


def main(arguments: Sequence[str] | None = None) -> int:
    """Compute missing results, draw, and judge."""
    options = _arguments(arguments)
    store = Store(options.output / "results", code_digest(), options.limit, options.begin_within)
    tasks = all_tasks()
    failures = _computed(store, options)
    found = [store.load(task, whatever_code=options.as_found) for task in tasks]
    evidence = Evidence([result for result in found if result is not None], failures)
    claims = list(all_claims(evidence))
    flips = {
        links: _flips(store, claims, links, whatever_code=options.as_found) for links in SENSITIVITY
    }
    from reproduction.paper.drawing import draw  # imports Matplotlib, which drawing alone needs

    pictures = draw(evidence, options.output)
    path = options.output / "claims.md"
    path.write_text(page(claims, evidence, pictures, failures, flips), encoding="utf-8")
    if options.document:
        there = sum(result is not None for result in found)
        older = sum(store.load(each.task) is None for each in found if each is not None)
        basis = f"{there} of {len(tasks)} frontiers were computed" + (
            f", {older} of them by older code." if older else "."
        )
        text = documented(DOCUMENT.read_text(encoding="utf-8"), claims, basis, flips)
        DOCUMENT.write_text(text, encoding="utf-8")
    for claim in claims:
        print(f"{claim.figure:8} {'yes' if claim.holds else 'NO ':3} {claim.claim}: {claim.why}")
    print(f"wrote {path}")
    print(json.dumps({"claims": [claim.to_json() for claim in claims]}))
    return int(any(task not in eliminations() for task in failures))


def _flips(
    store: Store, claims: Sequence[Claim], links: float, *, whatever_code: bool
) -> tuple[int, tuple[str, ...]]:
    """The number of claims, without those about searches, that were judged with other links, and
    the claims whose judgement differs."""
    others = []
    for task, other in sensitivity(links).items():
        result = store.load(other, whatever_code=whatever_code)
        if result is not None:
            others.append(replace(result, task=task))
    pairs = [
        (one, other)
        for one, other in zip(claims, all_claims(Evidence(others, {})), strict=True)
        if not (one.lacks_data or other.lacks_data) and one.figure != "Table 3"
    ]
    flipped = [one for one, other in pairs if one.holds != other.holds]
    return len(pairs), tuple(f"{claim.figure}, {claim.claim}" for claim in flipped)


if __name__ == "__main__":
    sys.exit(main())
