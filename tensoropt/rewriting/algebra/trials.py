"""Two terms compared at random inputs of random sizes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tensoropt.rewriting.algebra.typing import Typing, signature_of
from tensoropt.rewriting.algebra.values import (
    World,
    random_input,
    random_sizes,
    values_of,
)
from tensoropt.rewriting.terms import INPUT, TUPLE, Term

__all__ = ["agree"]


def agree(source: Term, target: Term, typing: Typing, seed: int, trials: int = 2) -> bool:
    """Whether two terms have equal values at random inputs of their types.

    Args:
        source, target: the terms.
        typing: their types.
        seed: of the random sizes and inputs.
        trials: how often; numbers of devices and microbatches differ.
    """
    draw = np.random.default_rng(seed)
    terms = [*source.subterms(), *target.subterms()]
    signatures = {
        term: signature_of(term, typing.ranks)
        for term in terms
        if term.operator not in (INPUT, TUPLE)
    }
    names = dict.fromkeys((*source.inputs, *target.inputs))
    for world in _worlds(any(term.operator == "shards" for term in terms), trials):
        sizes = random_sizes(typing, draw)
        inputs = {}
        for name in names:
            found = typing.input(name)
            inputs[name] = random_input(found.dims, found.lie, sizes, world, draw)
        one, other = values_of([source, target], inputs, signatures, world)
        if [v.fingerprint() for v in one] != [v.fingerprint() for v in other]:
            return False
    return True


def _worlds(two: bool, trials: int) -> Iterator[World]:
    for n in range(trials):
        yield World(2, 3) if two or n % 2 == 0 else World(3, 2)
