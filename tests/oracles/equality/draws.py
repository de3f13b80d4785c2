"""Random strategies of chosen kinds: variables stored in pieces or whole, outputs kept in one way
or another."""

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
"""Shares of operators for which the kept copies are drawn; each strategy draws one of these shares.
"""


def kinds_of(number: int, asked: Sequence[str]) -> tuple[str, ...]:
    """The kinds of a strategy. Strategies take turns: one with each kind of ``asked`` alone, then
    one with all of them."""
    turn = number % (len(asked) + 1)
    return (asked[turn],) if turn < len(asked) else tuple(asked)


def drawn_of(
    graph: Graph,
    choices: Sequence[Choices],
    mesh: Mesh,
    kinds: Sequence[str],
    random: np.random.Generator,
) -> tuple[tuple[int, ...], dict[str, str]]:
    """Draw a strategy; return its option numbers, and the kept copies by operator.

    Without ``kinds`` all options may be drawn. With ``kinds``, variables are in pieces if "sharded"
    is a kind and whole otherwise, and each operator keeps all copies or those of another kind.
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
    """Change a strategy so that all variables are in as many pieces as possible, or all are whole.

    Gradients and optimizer slots follow their variables.
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
