"""``python -m tools.rewriting.generate``: find, prove and write the package's substitutions.

The program needs ``z3-solver``, which the extra ``rewriting`` installs. It prints the substitutions
that `tools.rewriting.coverage` does not cover. The last line is a JSON object with the numbers of
evaluated terms, of candidates, of candidates that are no instances of others (``general``), of
those that are composed of smaller ones, of unproven ones, and of substitutions in the file
(``verified``), also by kind, and the seconds.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from multiprocessing import get_context
from pathlib import Path

from tensoropt.rewriting.algebra.typing import Typing, infer
from tensoropt.rewriting.substitutions import FILE, KINDS, Input, Substitution, kind_of, write
from tensoropt.rewriting.terms import TUPLE, Term
from tools.rewriting.alphabets import ALPHABETS
from tools.rewriting.candidates import (
    Alphabet,
    Candidate,
    candidates,
    without_instances,
)
from tools.rewriting.coverage import Covered, Uncovered, cover
from tools.rewriting.named import NAMED
from tools.rewriting.proofs import Rules, prove
from tools.rewriting.properties.equation import Equation, property_of

__all__ = ["generate", "main"]

PROCESSES = 2


def generate(
    alphabets: Sequence[Alphabet] = ALPHABETS,
) -> tuple[list[Substitution], dict[str, int]]:
    """The proven substitutions, named ones first, and counts of the other candidates.

    Raises:
        ValueError: if a named substitution is not proven.
    """
    found = [_named(name, text) for name, text in NAMED.items()]
    known = {(each.source, each.target) for each in found}
    with get_context("spawn").Pool(PROCESSES) as pool:
        parts = pool.map(_of_alphabet, reversed(alphabets), chunksize=1)  # the longest first
    for part, _ in parts:
        found += [each for each in part if (each.source, each.target) not in known]
        known |= {(each.source, each.target) for each in part}
    totals = Counter[str]()
    for _, counts in parts:
        totals.update(counts)
    return sorted(found, key=_order), dict(totals)


def _of_alphabet(alphabet: Alphabet) -> tuple[list[Substitution], dict[str, int]]:
    """The proven candidates of an alphabet that do not follow from smaller ones."""
    every, terms = candidates(alphabet)
    general = without_instances(every)
    found: list[Substitution] = []
    rules = Rules()
    counts = {"terms": terms, "candidates": len(every), "general": len(general)}
    counts |= {"composed": 0, "unproven": 0}
    for each in sorted(general, key=lambda c: (c.source.size + c.target.size, str(c.source))):
        if rules.give(each.source, each.target, each.typing):
            counts["composed"] += 1
            continue
        substitution = _proven(each)
        if substitution is None:
            counts["unproven"] += 1
            continue
        found.append(substitution)
        if each.source.operator != TUPLE:
            ranks = {i.name: i.rank for i in substitution.inputs}
            rules.add(Equation.of(each.source, each.target, ranks))
    return found, counts


def _order(each: Substitution) -> tuple[bool, int, int, int, str]:
    """The sorting key: named substitutions first, then by kind and size."""
    size = each.source.size + each.target.size
    return each.name not in NAMED, KINDS.index(each.kind), size, each.target.size, each.name


def _named(name: str, text: str) -> Substitution:
    stated = property_of(name, [text]).equations[0]
    source, target = stated.left, stated.right
    typing = infer(source, target, ranks=dict(stated.ranks))
    found = _substitution(name, source, target, typing)
    if found is None:
        raise ValueError(f"a substitution with a name is proven. Got {text}.")
    return found


def _proven(candidate: Candidate) -> Substitution | None:
    name = f"{candidate.source} = {candidate.target}"
    return _substitution(name, candidate.source, candidate.target, candidate.typing)


def _substitution(name: str, source: Term, target: Term, typing: Typing) -> Substitution | None:
    proof = prove(source, target, typing)
    if proof is None:
        return None
    types = {n: typing.input(n) for n in source.inputs}
    inputs = tuple(Input(n, len(found.dims), *found.placement) for n, found in types.items())
    return Substitution(name, kind_of(source, target), source, target, inputs, proof.properties)


def main(arguments: Sequence[str]) -> int:
    """Generate, prove and write the substitutions."""
    parser = argparse.ArgumentParser(prog="python -m tools.rewriting.generate", description=__doc__)
    parser.add_argument("--output", type=Path, default=FILE, help="the file to write")
    options = parser.parse_args(arguments)
    start = time.perf_counter()
    found, counts = generate()
    write(options.output, found)
    kinds = Counter(each.kind for each in found)
    covered = [cover(each) for each in found if each.kind == "parallel"]
    for side in covered:
        if isinstance(side, Uncovered):
            print(f"not covered: {side.substitution.name}: {side.term}: {side.reason}")
    print(
        json.dumps(
            {
                **counts,
                "verified": len(found),
                **{kind: kinds[kind] for kind in KINDS},
                "covered": sum(isinstance(each, Covered) for each in covered),
                "seconds": round(time.perf_counter() - start, 1),
            }
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
