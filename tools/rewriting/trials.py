"""Compares two terms at random inputs of random sizes."""

from __future__ import annotations

import numpy as np

from tensoropt.rewriting.algebra.typing import Typing, signature_of
from tensoropt.rewriting.terms import INPUT, TUPLE, Term
from tools.rewriting.values import (
    World,
    random_input,
    random_sizes,
    values_of,
)

__all__ = ["agree"]


def agree(
    source: Term,
    target: Term,
    typing: Typing,
    seed: int,
    trials: int = 2,
    kind: type[World] = World,
) -> bool:
    """Whether two terms have equal values at random inputs of their types.

    Args:
        source, target: the terms.
        typing: their types.
        seed: seed of the random sizes and inputs.
        trials: number of trials; numbers of devices and microbatches differ between them.
        kind: the world in which the terms are evaluated.
    """
    draw = np.random.default_rng(seed)
    terms = [*source.subterms(), *target.subterms()]
    signatures = {
        term: signature_of(term, typing.ranks)
        for term in terms
        if term.operator not in (INPUT, TUPLE)
    }
    names = dict.fromkeys((*source.inputs, *target.inputs))
    two = any(term.operator == "shards" for term in terms)
    for n in range(trials):
        world = kind(2, 3) if two or n % 2 == 0 else kind(3, 2)
        sizes = random_sizes(typing, draw)
        inputs = {}
        for name in names:
            found = typing.input(name)
            inputs[name] = random_input(found.dims, found.placement, sizes, world, draw)
        one, other = values_of([source, target], inputs, signatures, world)
        if not all(world.same(a, b) for a, b in zip(one, other, strict=True)):
            return False
    return True
