"""Types of terms: ranks, how tensors lie, and dimensions, inferred for two terms at once.

How a tensor lies on one mesh axis is a number: `WHOLE`, a shard of dimension 0, 1, ... on each
device, or `COPIES`: a tensor on each device, replicas of one or partial sums. In time it is whole
or a microbatch of dimension 0, 1, ... at a time. A substitution says one axis and holds for any
number of axes: what is whole on this axis may be split over others.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tensoropt.rewriting.algebra.dimensions import Dimensions, IllTyped
from tensoropt.rewriting.algebra.ranks import ranks_of
from tensoropt.rewriting.operators import OPERATORS, PARALLEL, Dim, Operator, Signature
from tensoropt.rewriting.terms import INPUT, TUPLE, Term

__all__ = [
    "COPIES",
    "MOST_DIMS",
    "WHOLE",
    "Lie",
    "TensorType",
    "Typing",
    "infer",
    "lie_after",
    "place_of",
    "signature_of",
    "split_index",
    "type_of",
]

WHOLE = -2
COPIES = -1
MOST_DIMS = 4
"""Tensors of terms have up to so many."""

Lie = tuple[int, int]
"""How a tensor lies over devices, and in time: there `WHOLE` or the dimension of microbatches."""


@dataclass(frozen=True)
class TensorType:
    """The type of a tensor in a term.

    Attributes:
        dims: its dimensions, as one device has them, at one microbatch.
        lie: how it lies.
    """

    dims: tuple[Dim, ...]
    lie: Lie


@dataclass(frozen=True)
class Typing:
    """The most general types of terms and all in them.

    Attributes:
        types: by subterm, with resolved dimensions.
        ranks: by subterm.
    """

    types: Mapping[Term, TensorType]
    ranks: Mapping[Term, int]

    def input(self, name: str) -> TensorType:
        """The type of an input."""
        return self.types[Term.input(name)]


def infer(
    *terms: Term,
    ranks: Mapping[str, int] | None = None,
    lies: Mapping[str, Lie] | None = None,
) -> Typing:
    """The most general types at which all terms have the same one.

    Args:
        terms: of the same inputs, as the two sides of a substitution.
        ranks: of inputs; where neither this nor an operator says one it is 2 or, where that has
            no type, the least that has.
        lies: how inputs lie, where that is known; otherwise whole, if that has a type, or as few
            of them distributed as can be.

    Raises:
        IllTyped: if there is no such type.
    """
    names = tuple(dict.fromkeys(name for term in terms for name in term.inputs))
    for default in range(2, MOST_DIMS + 1):
        try:
            known = ranks_of(*terms, ranks=ranks or {}, default=default)
        except IllTyped:
            continue
        for chosen in [lies] if lies is not None else _possible_lies(terms, names, known):
            try:
                return _typed(terms, known, chosen)
            except IllTyped:
                continue
    raise IllTyped


def _possible_lies(
    terms: Sequence[Term], names: Sequence[str], ranks: Mapping[Term, int]
) -> Iterator[dict[str, Lie]]:
    operators = {each.operator for term in terms for each in term.subterms()}
    space = bool(operators & {"partition", "combine", "replicate", "reduce"})
    time = bool(operators & {"pipeline", "batch"})
    each = []
    for name in names:
        rank = ranks[Term.input(name)]
        places = [WHOLE, *([COPIES, *range(rank)] if space else [])]
        each.append([(s, t) for s in places for t in [WHOLE, *(range(rank) if time else [])]])

    def distributed(lies: Sequence[Lie]) -> int:
        return sum(lie != (WHOLE, WHOLE) for lie in lies)

    for lies in sorted(itertools.product(*each), key=distributed):
        chosen = dict(zip(names, lies, strict=True))
        try:
            if len({_lie_of(term, chosen, ranks) for term in terms}) == 1:
                yield chosen
        except IllTyped:
            continue


def type_of(term: Term, arguments: Sequence[TensorType]) -> TensorType:
    """The type of the operator at a term's root, applied to tensors whose types are final.

    Raises:
        IllTyped: if it has none, unless sizes of theirs were equal that need not be.
    """
    if term.operator in PARALLEL:
        signature = None
    else:
        operator = OPERATORS[term.operator]
        if len(arguments) != operator.arity:
            raise IllTyped
        rank = 0
        for (kind, number), argument in zip(operator.ranks, arguments, strict=False):
            rank = len(argument.dims) - number if kind else rank
        for (kind, number), argument in zip(operator.ranks, arguments, strict=False):
            if len(argument.dims) != (rank + number if kind else number):
                raise IllTyped
        signature = operator.signature(term.parameters, rank)
        if signature is None:
            raise IllTyped
    first = arguments[0]
    lie = lie_after(term, [each.lie for each in arguments], signature, len(first.dims))
    if signature is None:
        return _final(term, arguments, lie)
    known: dict[int, Dim] = {}
    for argument, wanted in zip(arguments, signature.inputs, strict=True):
        for dim, pattern in zip(argument.dims, wanted, strict=True):
            _bind(pattern, dim, known)
    dims = tuple(_normal(_put(dim, known)) for dim in signature.output)
    return TensorType(dims, lie)


def _bind(pattern: Dim, dim: Dim, known: dict[int, Dim]) -> None:
    if isinstance(pattern, int):
        if known.setdefault(pattern, dim) != dim:
            raise IllTyped
        return
    if isinstance(dim, int):
        raise IllTyped
    if pattern[0] == "prod":
        dim = _major(dim)
    if isinstance(dim, int) or dim[0] != pattern[0]:
        raise IllTyped
    for one, other in zip(pattern[1:], dim[1:], strict=True):
        _bind(one, other, known)


def _major(dim: Dim) -> Dim:
    """(d a) b for d (a b), which `_normal` writes so."""
    if isinstance(dim, int) or dim[0] not in ("times", "micro"):
        return dim
    inner = _major(dim[1])
    if isinstance(inner, int) or inner[0] != "prod":
        return dim
    return ("prod", (dim[0], inner[1]), inner[2])


def _normal(dim: Dim) -> Dim:
    """d (a b) for (d a) b."""
    if isinstance(dim, int):
        return dim
    parts = tuple(map(_normal, dim[1:]))
    if dim[0] == "prod" and not isinstance(parts[0], int) and parts[0][0] in ("times", "micro"):
        return (parts[0][0], _normal(("prod", parts[0][1], parts[1])))
    return (dim[0], *parts)


def _put(dim: Dim, known: Mapping[int, Dim]) -> Dim:
    if isinstance(dim, int):
        return known[dim]
    return (dim[0], *(_put(each, known) for each in dim[1:]))


def _final(term: Term, arguments: Sequence[TensorType], lie: Lie) -> TensorType:
    """Of an operator that changes how a tensor lies."""
    dims = list(arguments[0].dims)
    number = term.parameters[0] if term.parameters else 0
    kind = "times" if term.operator in ("partition", "combine") else "micro"
    match term.operator:
        case "partition" | "pipeline":
            dim = dims[number]
            if isinstance(dim, int) or dim[0] != kind:
                raise IllTyped
            dims[number] = dim[1]
        case "combine" | "batch":
            dims[number] = (kind, dims[number])
        case "shards" if arguments[0].dims != arguments[1].dims:
            raise IllTyped
    return TensorType(tuple(dims), lie)


def _lie_of(term: Term, lies: Mapping[str, Lie], ranks: Mapping[Term, int]) -> object:
    if term.operator == INPUT:
        return lies[term.name]
    arguments = [_lie_of(each, lies, ranks) for each in term.arguments]
    if term.operator == TUPLE:
        return tuple(arguments)
    rank = ranks[term.arguments[0]]
    return lie_after(term, arguments, signature_of(term, ranks), rank)  # type: ignore[arg-type]


def signature_of(term: Term, ranks: Mapping[Term, int]) -> Signature | None:
    """The signature of the term's operator; None of one that only changes how a tensor lies.

    Raises:
        IllTyped: if its parameters do not fit.
    """
    if term.operator in PARALLEL:
        return None
    operator = OPERATORS[term.operator]
    found = operator.signature(term.parameters, _free_rank(operator, term, ranks))
    if found is None:
        raise IllTyped
    return found


def _free_rank(operator: Operator, term: Term, ranks: Mapping[Term, int]) -> int:
    """The operator's ``r``."""
    for (kind, number), argument in zip(operator.ranks, term.arguments, strict=False):
        if kind:
            return ranks[argument] - number
    return 0


def lie_after(term: Term, lies: Sequence[Lie], signature: Signature | None, rank: int) -> Lie:
    """How the operator's output lies.

    Raises:
        IllTyped: if it cannot be applied to what lies so.
    """
    space, time = lies[0]
    (dim,) = term.parameters if term.parameters and signature is None else (None,)
    match term.operator:
        case "partition" if space == WHOLE and dim is not None and dim < rank:
            return dim, time
        case "replicate" if space == WHOLE:
            return COPIES, time
        case "combine" if space == dim:
            return WHOLE, time
        case "reduce" if space == COPIES:
            return WHOLE, time
        case "pipeline" if time == WHOLE and dim is not None and dim < rank:
            return space, dim
        case "batch" if time == dim:
            return space, WHOLE
        case "shards" if lies[0] == lies[1] and space == WHOLE:
            return COPIES, time
    if signature is None:
        raise IllTyped
    return _space_after(lies, signature), _time_after(lies, signature)


def split_index(places: Sequence[int], signature: Signature) -> int | None:
    """The index that is split where inputs lie so over devices; None for none.

    Raises:
        IllTyped: if there is no configuration that takes them so.
    """
    if all(place == WHOLE for place in places) or all(place == COPIES for place in places):
        return None
    for index in signature.splittable:
        wanted = [place_of(index, dims) for dims in signature.inputs]
        if all((COPIES if w is None else w) == p for w, p in zip(wanted, places, strict=True)):
            return index
    raise IllTyped


def _space_after(lies: Sequence[Lie], signature: Signature) -> int:
    places = [space for space, _ in lies]
    index = split_index(places, signature)
    if index is None:
        return places[0]
    place = place_of(index, signature.output)
    return COPIES if place is None else place


def _time_after(lies: Sequence[Lie], signature: Signature) -> int:
    """What has no microbatches is used in each. No operator adds up over microbatches."""
    times = [time for _, time in lies]
    if all(time == WHOLE for time in times):
        return WHOLE
    for index in signature.splittable:
        wanted = [place_of(index, dims) for dims in signature.inputs]
        place = place_of(index, signature.output)
        if place is not None and times == [WHOLE if w is None else w for w in wanted]:
            return place
    raise IllTyped


def place_of(index: int, dims: Sequence[Dim]) -> int | None:
    """The dimension that a split of an index splits: its own, or one of which it is major."""
    for place, dim in enumerate(dims):
        if dim == index or (isinstance(dim, tuple) and dim[0] == "prod" and dim[1] == index):
            return place
    return None


def _typed(terms: Sequence[Term], ranks: Mapping[Term, int], lies: Mapping[str, Lie]) -> Typing:
    dimensions = Dimensions()
    types: dict[Term, TensorType] = {}
    for term in terms:
        for each in term.subterms():
            if each in types or each.operator == TUPLE:
                continue
            if each.operator == INPUT:
                dims = tuple(dimensions.new() for _ in range(ranks[each]))
                types[each] = TensorType(dims, lies[each.name])
            else:
                types[each] = _applied(each, [types[a] for a in each.arguments], ranks, dimensions)
    outputs = [term.arguments if term.operator == TUPLE else (term,) for term in terms]
    for other in outputs[1:]:
        for a, b in zip(outputs[0], other, strict=True):
            _make_equal(types[a], types[b], dimensions)
    return Typing(
        {
            term: TensorType(tuple(map(dimensions.resolved, found.dims)), found.lie)
            for term, found in types.items()
        },
        ranks,
    )


def _make_equal(a: TensorType, b: TensorType, dimensions: Dimensions) -> None:
    if a.lie != b.lie or len(a.dims) != len(b.dims):
        raise IllTyped
    for x, y in zip(a.dims, b.dims, strict=True):
        dimensions.equal(x, y)


def _applied(
    term: Term,
    arguments: Sequence[TensorType],
    ranks: Mapping[Term, int],
    dimensions: Dimensions,
) -> TensorType:
    signature = signature_of(term, ranks)
    first = arguments[0]
    lie = lie_after(term, [each.lie for each in arguments], signature, len(first.dims))
    if signature is not None:
        named: dict[int, int] = {}
        for found, wanted in zip(arguments, signature.inputs, strict=True):
            for x, y in zip(found.dims, wanted, strict=True):
                dimensions.equal(x, dimensions.fresh(y, named))
        return TensorType(tuple(dimensions.fresh(dim, named) for dim in signature.output), lie)
    dims = list(first.dims)
    match term.operator:
        case "partition" | "pipeline":
            share = dimensions.new()
            kind = "times" if term.operator == "partition" else "micro"
            dimensions.equal(dims[term.parameters[0]], (kind, share))
            dims[term.parameters[0]] = share
        case "combine":
            dims[term.parameters[0]] = ("times", dims[term.parameters[0]])
        case "batch":
            dims[term.parameters[0]] = ("micro", dims[term.parameters[0]])
        case "shards":
            _make_equal(first, arguments[1], dimensions)
    return TensorType(tuple(dims), lie)
