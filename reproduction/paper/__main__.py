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
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from reproduction.paper.claims import Claim, Evidence, all_claims, tasks_of_failing, turns
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

_BATCH = 24  # tasks of a process, which imports TensorFlow and a model once
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
    turn = "factors of the links' bandwidth with which failing claims are judged again"
    add("--turn", type=float, nargs="+", default=(), metavar="FACTOR", help=turn)
    only = "compute those results alone whose name has this regular expression"
    add("--only", type=re.compile, default=re.compile(""), metavar="PATTERN", help=only)
    add("--fresh", action="store_true", help="compute all results again")
    kept = "compute nothing: use the results of earlier runs, also those of other code"
    add("--as-found", action="store_true", help=kept)
    add("--document", action="store_true", help=f"also write the claims into {DOCUMENT.name}")
    return parser.parse_args(arguments)


def _computed(store: Store, options: argparse.Namespace) -> dict[Task, str]:
    """Compute missing results; return the tasks without a result, with the reasons."""
    if options.as_found:
        return {task: why for task in all_tasks() if (why := store.failure(task)) is not None}
    tasks = _chosen(all_tasks(), options)
    if options.fresh:
        store.forget(tasks)
    timed = _chosen((*searches(), *eliminations()), options)
    failures = store.compute(timed, jobs=1)  # timed searches run alone
    others = [task for task in tasks if task not in failures]
    failures |= store.compute(others, options.jobs, _BATCH)
    if options.sensitivity:
        others = [task for links in SENSITIVITY for task in sensitivity(links).values()]
        store.compute(_chosen(others, options), options.jobs, _BATCH)
    if options.turn:
        evidence = _evidence(store, failures)
        failing = tasks_of_failing(all_claims(evidence), evidence)
        others = [replace(task, links=links) for links in options.turn for task in failing]
        store.compute(_chosen(others, options), options.jobs, _BATCH)
    return failures


def _chosen(tasks: Iterable[Task], options: argparse.Namespace) -> list[Task]:
    return [task for task in tasks if options.only.search(task.name)]


def _evidence(
    store: Store, failures: Mapping[Task, str], *, links: float = 1.0, whatever_code: bool = False
) -> Evidence:
    """The results of all tasks; with other links, as if these were the test bed's."""
    found = []
    for task in all_tasks():
        result = store.load(replace(task, links=links), whatever_code=whatever_code)
        if result is not None:
            found.append(replace(result, task=task))
    return Evidence(found, failures)


def main(arguments: Sequence[str] | None = None) -> int:
    """Compute missing results, draw, and judge."""
    options = _arguments(arguments)
    store = Store(options.output / "results", code_digest(), options.limit, options.begin_within)
    failures = _computed(store, options)
    evidence = _evidence(store, failures, whatever_code=options.as_found)
    claims = list(all_claims(evidence))
    again = {
        links: list(all_claims(_evidence(store, {}, links=links, whatever_code=options.as_found)))
        for links in sorted({*SENSITIVITY, *store.links()})
    }
    flips = {links: _flips(claims, again[links]) for links in SENSITIVITY}
    turning = list(turns(claims, again))
    from reproduction.paper.drawing import draw  # imports Matplotlib, which drawing alone needs

    pictures = draw(evidence, options.output)
    path = options.output / "claims.md"
    path.write_text(page(claims, evidence, pictures, failures, flips, turning), encoding="utf-8")
    if options.document:
        basis = _basis(store, whatever_code=options.as_found)
        text = documented(DOCUMENT.read_text(encoding="utf-8"), claims, basis, flips, turning)
        DOCUMENT.write_text(text, encoding="utf-8")
    for claim in claims:
        print(f"{claim.figure:8} {'yes' if claim.holds else 'NO ':3} {claim.claim}: {claim.why}")
    print(f"wrote {path}")
    report = {
        "claims": [claim.to_json() for claim in claims],
        "turns": [{"claim": each.claim.claim, "links": each.at} for each in turning],
    }
    print(json.dumps(report))
    return int(any(task not in eliminations() for task in failures))


def _basis(store: Store, *, whatever_code: bool) -> str:
    """A sentence about the frontiers behind the judgements."""
    tasks = all_tasks()
    there = [task for task in tasks if store.load(task, whatever_code=whatever_code) is not None]
    older = sum(store.load(task) is None for task in there)
    by = f", {older} of them by older code" if older else ""
    return f"{len(there)} of {len(tasks)} frontiers were computed{by}."


def _flips(claims: Sequence[Claim], again: Sequence[Claim]) -> tuple[int, tuple[str, ...]]:
    """The number of claims, without those about searches, that were judged with other links, and
    the claims whose judgement differs."""
    pairs = [
        (one, other)
        for one, other in zip(claims, again, strict=True)
        if not (one.lacks_data or other.lacks_data) and one.figure != "Table 3"
    ]
    flipped = [one for one, other in pairs if one.holds != other.holds]
    return len(pairs), tuple(f"{claim.figure}, {claim.claim}" for claim in flipped)


if __name__ == "__main__":
    sys.exit(main())
