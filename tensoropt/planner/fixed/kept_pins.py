"""The check of a finished plan: whether its operators keep their pins."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod

from tensoropt.errors import InfeasibleError
from tensoropt.parallel.assignments import assignment_of
from tensoropt.parallel.choices.pins import Pins
from tensoropt.parallel.configuration import Configuration
from tensoropt.parallel.mesh import Mesh
from tensoropt.plan.plan import Plan

__all__ = ["groups_of_levels", "with_fixed"]

_NAMED = 3
"""The most operators that a note names."""


def groups_of_levels(plan: Plan, stage: int | None = None) -> tuple[int, ...]:
    """Return the groups of each level that a plan has, or one of its stages in all copies."""
    axes = plan.mesh_axes if stage is None else plan.stages[stage].mesh_axes
    copies = 1 if stage is None else plan.copies
    outermost, *others = plan.cluster.level_counts(prod(axes) // copies)
    return (outermost * copies, *others)


def with_fixed(plan: Plan, pins: Pins) -> Plan:
    """Return a plan with the words of its pins, and with a note of operators that cannot keep them.

    Raises:
        InfeasibleError: no operator of a word keeps its pins.
    """
    if not pins.of_operator:
        return plan
    checked = dict(_checked(plan, pins))
    lacking = [name for name, is_kept in checked.items() if not is_kept]
    for word, names in zip(pins.words, pins.by_word, strict=True):
        own = [name for name in checked if name in names]
        if own and not any(checked[name] for name in own):
            raise InfeasibleError(
                "operators of a layer are divided as fixed says. Got "
                f"{str(word)!r}, which {own[0]!r} cannot be; leave it open, or divide another "
                "dimension."
            )
    notes = plan.notes
    if lacking:
        several = f" and {len(lacking) - _NAMED} more" if len(lacking) > _NAMED else ""
        named = ", ".join(map(repr, lacking[:_NAMED]))
        notes += (f"fixed holds where operators can be divided so; not for {named}{several}",)
    return replace(plan, fixed=pins.words, notes=notes)


def _checked(plan: Plan, pins: Pins) -> Iterator[tuple[str, bool]]:
    """Yield the name of each pinned operator of a plan, and whether it keeps its pins."""
    stage_of = plan.stage_of
    stages = range(len(plan.stages)) if plan.stages else [None]
    on = {
        stage: pins.on(
            Mesh(plan.mesh_axes if stage is None else plan.stages[stage].mesh_axes),
            groups_of_levels(plan, stage),
        )
        for stage in stages
    }
    for operator in plan.operators:
        if operator.name in pins.of_operator:
            of_stage = on[stage_of.get(operator.name)]
            assigned = assignment_of(Configuration(operator.splits), of_stage.mesh)
            yield operator.name, bool(of_stage.allows(operator.name, assigned)[0])
