"""Candidates: terms up to a given size whose values are equal (TASO, section 4; Unity, 4).

All terms over an alphabet are evaluated at fixed inputs, smaller terms first. A term with a new
fingerprint is the first of its class. A term with a known fingerprint makes a candidate with the
first of that class. Larger terms are built of first terms alone, since a term that contains another
one is a composition of a smaller candidate. Candidates that differ only in the names of inputs
count once, and so do those whose common subgraph may be any tensor.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tensoropt.rewriting.algebra.dimensions import IllTyped
from tensoropt.rewriting.algebra.typing import WHOLE, Placement, TensorType, Typing, infer
from tensoropt.rewriting.operators import OPERATORS, PARALLEL, Signature
from tensoropt.rewriting.terms import INPUT, TUPLE, Term
from tools.rewriting.trials import agree
from tools.rewriting.values import Value, World, apply, random_input

__all__ = [
    "Alphabet",
    "Candidate",
    "Enumeration",
    "InputKind",
    "candidates",
    "renamed",
    "without_instances",
]


@dataclass(frozen=True)
class InputKind:
    """Inputs of one type.

    Attributes:
        names: names of the inputs; a term uses the first ones.
        shape: shape of a device's piece, at one microbatch.
        placement: their placement, see `tensoropt.rewriting.algebra.typing`.
    """

    names: tuple[str, ...]
    shape: tuple[int, ...]
    placement: Placement = (WHOLE, WHOLE)


@dataclass(frozen=True)
class Alphabet:
    """The inputs and operators of terms.

    Attributes:
        name: name for reports.
        inputs: kinds of inputs.
        operators: operators with their parameters.
        size: most operators of a term, counted as in a tree.
        computing: most of these operators that compute.
    """

    name: str
    inputs: tuple[InputKind, ...]
    operators: tuple[tuple[str, tuple[int, ...]], ...]
    size: int
    computing: int = 99


@dataclass(frozen=True)
class Candidate:
    """Two terms with equal fingerprints, and types at which they also agree for other inputs."""

    source: Term
    target: Term
    typing: Typing


@dataclass
class _Known:
    term: Term
    value: Value
    size: int
    computing: int


@dataclass
class Enumeration:
    """The results of an alphabet.

    Attributes:
        terms: number of evaluated terms.
        pairs: terms with equal fingerprints.
        parts: for parts of splits the first terms with the same fingerprints.
    """

    terms: int = 0
    pairs: list[tuple[Term, Term]] = field(default_factory=list)
    parts: dict[Term, Term] = field(default_factory=dict)


def enumerate_terms(alphabet: Alphabet, seed: int = 4) -> Enumeration:
    """Evaluate all terms of an alphabet; return the equal ones."""
    draw = np.random.default_rng(seed)
    world = World()
    found = Enumeration()
    first: dict[object, Term] = {}
    levels: list[list[_Known]] = [[]]
    order: dict[str, tuple[int, int]] = {}
    for k, kind in enumerate(alphabet.inputs):
        for n, name in enumerate(kind.names):
            value = random_input(
                _leaves(kind.shape), kind.placement, _sizes(kind.shape), world, draw
            )
            levels[0].append(_Known(Term.input(name), value, 0, 0))
            first[value.fingerprint()] = Term.input(name)
            order[name] = (k, n)
    signatures: dict[object, Signature | None] = {}
    for size in range(1, alphabet.size + 1):
        level: list[_Known] = []
        for operator, parameters in alphabet.operators:
            for arguments in _arguments(operator, levels, size):
                computing = (operator not in PARALLEL) + sum(a.computing for a in arguments)
                if computing > alphabet.computing or (
                    operator == "reduce" and _are_replicas(arguments[0].value)
                ):
                    continue
                term = Term(operator, tuple(a.term for a in arguments), parameters)
                signature = _signature(term, arguments, signatures)
                if signature is False:
                    continue
                try:
                    value = apply(term, [a.value for a in arguments], signature, world)  # type: ignore[arg-type]
                except IllTyped:
                    continue
                found.terms += 1
                key = value.fingerprint()
                if key not in first:
                    first[key] = term
                    level.append(_Known(term, value, size, computing))
                    continue
                if operator == "split":
                    found.parts[term] = first[key]
                if _in_order(first[key], term, order):
                    found.pairs.append((first[key], term))
        levels.append(level)
    return found


def _are_replicas(value: Value) -> bool:
    """Whether all devices have the same tensor; a sum of replicas is of no use."""
    return all(np.array_equal(row, value.pieces[0]) for row in value.pieces)


def _leaves(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(range(len(shape)))


def _sizes(shape: Sequence[int]) -> dict[int, int]:
    return dict(enumerate(shape))


def _arguments(
    operator: str, levels: Sequence[Sequence[_Known]], size: int
) -> Iterator[tuple[_Known, ...]]:
    """Tuples of arguments with which the term has ``size`` operators."""
    arity = OPERATORS[operator].arity if operator in OPERATORS else 1 + (operator == "shards")
    for sizes in itertools.product(range(size), repeat=arity):
        if sum(sizes) == size - 1:
            yield from itertools.product(*(levels[n] for n in sizes))


def _signature(
    term: Term, arguments: Sequence[_Known], cache: dict[object, Signature | None]
) -> Signature | bool | None:
    """The signature of the operator at these ranks; False if it has none."""
    if term.operator in PARALLEL:
        return None
    ranks = tuple(len(a.value.extents) for a in arguments)
    key = (term.operator, term.parameters, ranks)
    if key not in cache:
        operator = OPERATORS[term.operator]
        rank = 0
        for (kind, number), own in zip(operator.ranks, ranks, strict=False):
            rank = own - number if kind else rank
        fits = all(
            own == (rank + number if kind else number)
            for (kind, number), own in zip(operator.ranks, ranks, strict=False)
        )
        cache[key] = operator.signature(term.parameters, rank) if fits else None
    return cache[key] or False


def _in_order(first: Term, second: Term, order: dict[str, tuple[int, int]]) -> bool:
    """Whether a pair uses the first inputs of each kind in order; other pairs are its renamings."""
    seen: dict[int, int] = {}
    for name in dict.fromkeys((*first.inputs, *second.inputs)):
        kind, number = order[name]
        if seen.setdefault(kind, 0) != number:
            return False
        seen[kind] += 1
    return True


def candidates(alphabet: Alphabet) -> tuple[list[Candidate], int]:
    """The candidates of an alphabet, and the number of evaluated terms."""
    found = enumerate_terms(alphabet)
    placements = {name: kind.placement for kind in alphabet.inputs for name in kind.names}
    ranks = {name: len(kind.shape) for kind in alphabet.inputs for name in kind.names}
    kept: list[Candidate] = []
    seen: set[tuple[Term, Term]] = set()
    for one, other in [*found.pairs, *_tuples(found.parts)]:
        candidate = _candidate(one, other, ranks, placements)
        if candidate is None or (candidate.source, candidate.target) in seen:
            continue
        seen.add((candidate.source, candidate.target))
        if not _has_common_subgraph(candidate):
            kept.append(candidate)
    return kept, found.terms


def without_instances(found: Sequence[Candidate]) -> list[Candidate]:
    """Leave out candidates that are instances of other candidates, with terms for inputs."""
    by_root: dict[object, list[Candidate]] = {}
    for each in found:
        by_root.setdefault(_root(each.source), []).append(each)
        by_root.setdefault(_root(each.target), []).append(each)
    return [each for each in found if not any(_says(o, each) for o in by_root[_root(each.source)])]


def _root(term: Term) -> tuple[object, ...]:
    return term.operator, term.parameters, len(term.arguments)


def _says(general: Candidate, each: Candidate) -> bool:
    """Whether ``each`` is ``general`` with terms for inputs, and not a mere renaming."""
    if general is each:
        return False
    sides = (general.source, general.target)
    for one, other in (sides, sides[::-1]):
        named: dict[str, Term] = {}
        if _matches(one, each.source, named) and _matches(other, each.target, named):
            wanted = list(named.values())
            same = all(t.operator == INPUT for t in wanted) and len(set(wanted)) == len(wanted)
            if not same:
                return True
    return False


def _matches(pattern: Term, term: Term, named: dict[str, Term]) -> bool:
    if pattern.operator == INPUT:
        return named.setdefault(pattern.name, term) == term
    if _root(pattern) != _root(term):
        return False
    return all(
        _matches(a, b, named) for a, b in zip(pattern.arguments, term.arguments, strict=True)
    )


def _tuples(parts: Mapping[Term, Term]) -> Iterator[tuple[Term, Term]]:
    """Pairs of tuples: both parts of a split, and the two terms that equal these parts."""
    for term, one in parts.items():
        dim, part = term.parameters
        second = Term("split", term.arguments, (dim, 1))
        if part == 0 and second in parts and one.arguments and parts[second].arguments:
            yield Term(TUPLE, (one, parts[second])), Term(TUPLE, (term, second))


def _candidate(
    one: Term, other: Term, ranks: dict[str, int], placements: dict[str, Placement]
) -> Candidate | None:
    """A candidate with the smaller term first, unless that term lacks an input; None if the two
    terms have no common types, or differ at other sizes."""
    source, target = (one, other) if set(other.inputs) <= set(one.inputs) else (other, one)
    if not source.arguments:
        source, target = target, source
    if not set(target.inputs) <= set(source.inputs) or not source.arguments:
        return None
    names = {name: f"{'xyzwuv'[n]}" for n, name in enumerate(source.inputs)}
    source, target = renamed(source, names), renamed(target, names)
    own_ranks = {new: ranks[old] for old, new in names.items()}
    own_placements = {new: placements[old] for old, new in names.items()}
    try:
        typing = infer(source, target, ranks=own_ranks, placements=own_placements)
        agreed = agree(source, target, typing, seed=7)
    except IllTyped:
        return None
    return Candidate(source, target, typing) if agreed else None


def renamed(term: Term, names: dict[str, str]) -> Term:
    """The term with other names of inputs."""
    return term.replaced({Term.input(a): Term.input(b) for a, b in names.items()})


def _has_common_subgraph(candidate: Candidate) -> bool:
    """Whether some subterm of both terms may be replaced by any tensor."""
    own = [t for t in candidate.source.subterms() if t.operator not in (INPUT, TUPLE)]
    shared = set(own) & set(candidate.target.subterms()) - {candidate.source, candidate.target}
    for term in shared:
        by = {term: Term.input("any")}
        source, target = candidate.source.replaced(by), candidate.target.replaced(by)
        found: TensorType = candidate.typing.types[term]
        names = {*source.inputs, *target.inputs} - {"any"}
        types = {name: candidate.typing.input(name) for name in names} | {"any": found}
        ranks = {name: len(each.dims) for name, each in types.items()}
        placements = {name: each.placement for name, each in types.items()}
        try:
            if agree(
                source, target, infer(source, target, ranks=ranks, placements=placements), seed=11
            ):
                return True
        except IllTyped:
            continue
    return False
