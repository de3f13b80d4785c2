"""Strategies of chosen kinds: variables in pieces or whole, and what is kept of other outputs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tensoropt.graph.operator import Graph
from tensoropt.parallel.choices.choices import Choices
from tensoropt.parallel.configuration import KEPT
from tensoropt.parallel.mesh import Mesh
from tests.oracles.equality.engine import draw, draw_kept
from tests.oracles.equality.kinds import KEPT_KINDS

__all__ = ["KEPT_SHARES", "drawn_of", "kinds_of", "with_variables"]

KEPT_SHARES = (0.5, 1.0, 0.0)
"""Of the operators, for which what is kept is drawn: one of these a strategy."""


def kinds_of(number: int, asked: Sequence[str]) -> tuple[str, ...]:
    """Of the kinds asked for, those that a strategy is to have: each one alone in turn, then
    all together."""
    turn = number % (len(asked) + 1)
    return (asked[turn],) if turn < len(asked) else tuple(asked)


def drawn_of(
    graph: Graph,
    choices: Sequence[Choices],
    mesh: Mesh,
    kinds: Sequence[str],
    random: np.random.Generator,
) -> tuple[tuple[int, ...], dict[str, str]]:
    """A strategy: its option numbers, and what is kept by operator.

    Without ``kinds`` anything goes. With them variables are in pieces if "sharded" is among them,
    else whole, and of every operator all copies or what others of `KEPT_KINDS` name are kept.
    """
    numbers = draw(graph, choices, mesh, random).numbers
    if not kinds:
        return numbers, draw_kept(choices, float(random.choice(KEPT_SHARES)), random)
    ways = ("both", *(kind for kind in kinds if kind in KEPT and kind in KEPT_KINDS))
    numbers = with_variables(graph, choices, numbers, "sharded" in kinds, random)
    kept: dict[str, str] = {}
    for group in choices:
        kept |= dict.fromkeys(group.members, str(random.choice(ways)))
    return numbers, kept


def with_variables(
    graph: Graph,
    choices: Sequence[Choices],
    numbers: Sequence[int],
    sharded: bool,
    random: np.random.Generator,
) -> tuple[int, ...]:
    """A strategy with all variables in as many pieces as there may be, or all of them whole.

    Their gradients and their optimizer's slots lie as they do.
    """
    found = list(numbers)
    for place, group in enumerate(choices):
        if not graph[group.leader].is_variable:
            continue
        axes = [
            sum(map(len, group.options[number][group.leader].splits))
            for number in range(len(group.options))
        ]
        wanted = max(axes) if sharded else 0
        found[place] = int(random.choice([n for n, count in enumerate(axes) if count == wanted]))
    return tuple(found)
