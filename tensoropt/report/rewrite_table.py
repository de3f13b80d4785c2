"""A table of a plan's substitutions."""

from __future__ import annotations

from collections import Counter

from tensoropt.plan import Plan
from tensoropt.report.text_table import Report, table
from tensoropt.transformations.rewritten.application import substitutions_by_name

__all__ = ["rewrite_table"]


def rewrite_table(plan: Plan) -> Report:
    """One line per substitution: its equation, the properties that prove it, the number of its
    places and the first place."""
    known = substitutions_by_name()
    first = {}
    for rewrite in reversed(plan.rewrites):
        first[rewrite.substitution] = rewrite.outputs[0]
    rows = []
    for name, count in Counter(rewrite.substitution for rewrite in plan.rewrites).items():
        substitution = known.get(name)
        says = "unknown to this version" if substitution is None else str(substitution)
        proof = "" if substitution is None else ", ".join(substitution.proof)
        rows.append([name, says, proof, str(count), first[name]])
    header = ["substitution", "says", "proven from", "places", "first at"]
    return table(header, rows, [False, False, False, True, False])
