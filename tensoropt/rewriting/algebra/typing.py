"""Types of terms: ranks, placements of tensors and dimensions, inferred for two terms at once.

The placement of a tensor on one mesh axis is a number: `WHOLE`; a dimension 0, 1, ... of which each
device has a shard; or `COPIES`, a tensor on each device, either replicas or partial sums. The
placement in time is `WHOLE`, or the dimension 0, 1, ... that is computed a microbatch at a time. A
substitution concerns one axis and holds for any number of axes: a tensor that is whole on this axis
may be split over other ones.
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
    "Placement",
    "TensorType",
    "Typing",
    "infer",
    "placement_after",
    "signature_of",
    "split_dim",
    "split_index",
    "type_of",
]

WHOLE = -2
COPIES = -1
MOST_DIMS = 4
"""Most dimensions of a tensor in a term."""

Placement = tuple[int, int]
"""The placement of a tensor over devices, and in time: `WHOLE` or the microbatches' dimension."""


@dataclass(frozen=True)
class TensorType:
    """The type of a tensor in a term.

    Attributes:
        dims: its dimensions, for one device and one microbatch.
        placement: its placement.
    """

    dims: tuple[Dim, ...]
    placement: Placement


@dataclass(frozen=True)
class Typing:
    """The most general types of some terms and their subterms.

    Attributes:
        types: the type of each subterm, with resolved dimensions.
        ranks: the rank of each subterm.
    """

    types: Mapping[Term, TensorType]
    ranks: Mapping[Term, int]

    def input(self, name: str) -> TensorType:
        """The type of an input."""
        return self.types[Term.input(name)]


def infer(
    *terms: Term,
    ranks: Mapping[str, int] | None = None,
    placements: Mapping[str, Placement] | None = None,
) -> Typing:
    """The most general types for which all terms have the same type.

    Args:
        terms: terms of the same inputs, such as the two sides of a substitution.
        ranks: ranks of inputs. A rank that neither this nor an operator determines is 2, or the
            least rank above for which there is a type.
        placements: placements of inputs. By default inputs are whole, if there is a type, or else
            as few as possible are distributed.

    Raises:
        IllTyped: if there is no such type.
    """
    names = tuple(dict.fromkeys(name for term in terms for name in term.inputs))
    for default in range(2, MOST_DIMS + 1):
        try:
            known = ranks_of(*terms, ranks=ranks or {}, default=default)
        except IllTyped:
            continue
        for chosen in (
            [placements] if placements is not None else _possible_placements(terms, names, known)
        ):
            try:
                return _typed(terms, known, chosen)
            except IllTyped:
                continue
    raise IllTyped


def _possible_placements(
    terms: Sequence[Term], names: Sequence[str], ranks: Mapping[Term, int]
) -> Iterator[dict[str, Placement]]:
    operators = {subterm.operator for term in terms for subterm in term.subterms()}
    space = bool(operators & {"partition", "combine", "replicate", "reduce"})
    time = bool(operators & {"pipeline", "batch"})
    choices = []
    for name in names:
        rank = ranks[Term.input(name)]
        places = [WHOLE, *([COPIES, *range(rank)] if space else [])]
        choices.append([(s, t) for s in places for t in [WHOLE, *(range(rank) if time else [])]])

    def distributed(placements: Sequence[Placement]) -> int:
        return sum(placement != (WHOLE, WHOLE) for placement in placements)

    for placements in sorted(itertools.product(*choices), key=distributed):
        chosen = dict(zip(names, placements, strict=True))
        try:
            if len({_placement_of(term, chosen, ranks) for term in terms}) == 1:
                yield chosen
        except IllTyped:
            continue


def type_of(term: Term, arguments: Sequence[TensorType]) -> TensorType:
    """The type of the operator at a term's root, applied to tensors whose types are final.

    Raises:
        IllTyped: if it has none. A type that would require two sizes to be equal is not found.
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
    placement = placement_after(
        term, [argument.placement for argument in arguments], signature, len(first.dims)
    )
    if signature is None:
        return _final(term, arguments, placement)
    known: dict[int, Dim] = {}
    for argument, wanted in zip(arguments, signature.inputs, strict=True):
        for dim, pattern in zip(argument.dims, wanted, strict=True):
            _bind(pattern, dim, known)
    dims = tuple(_normal(_put(dim, known)) for dim in signature.output)
    return TensorType(dims, placement)


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
    """The form (d a) b of a dimension d (a b), which is how `_normal` writes it."""
    if isinstance(dim, int) or dim[0] not in ("times", "micro"):
        return dim
    inner = _major(dim[1])
    if isinstance(inner, int) or inner[0] != "prod":
        return dim
    return ("prod", (dim[0], inner[1]), inner[2])


def _normal(dim: Dim) -> Dim:
    """The form d (a b) of a dimension (d a) b."""
    if isinstance(dim, int):
        return dim
    parts = tuple(map(_normal, dim[1:]))
    if dim[0] == "prod" and not isinstance(parts[0], int) and parts[0][0] in ("times", "micro"):
        return (parts[0][0], _normal(("prod", parts[0][1], parts[1])))
    return (dim[0], *parts)


def _put(dim: Dim, known: Mapping[int, Dim]) -> Dim:
    if isinstance(dim, int):
        return known[dim]
    return (dim[0], *(_put(part, known) for part in dim[1:]))


def _final(term: Term, arguments: Sequence[TensorType], placement: Placement) -> TensorType:
    """The type of an operator that changes a placement, with final dimensions."""
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
    return TensorType(tuple(dims), placement)


def _placement_of(
    term: Term, placements: Mapping[str, Placement], ranks: Mapping[Term, int]
) -> object:
    if term.operator == INPUT:
        return placements[term.name]
    arguments = [_placement_of(argument, placements, ranks) for argument in term.arguments]
    if term.operator == TUPLE:
        return tuple(arguments)
    rank = ranks[term.arguments[0]]
    return placement_after(term, arguments, signature_of(term, ranks), rank)  # type: ignore[arg-type]


def signature_of(term: Term, ranks: Mapping[Term, int]) -> Signature | None:
    """The signature of the term's operator; None for one that only changes a placement.

    Raises:
        IllTyped: if its parameters do not fit.
    """
    if term.operator in PARALLEL:
        return None
    operator = OPERATORS[term.operator]
    signature = operator.signature(term.parameters, _free_rank(operator, term, ranks))
    if signature is None:
        raise IllTyped
    return signature


def _free_rank(operator: Operator, term: Term, ranks: Mapping[Term, int]) -> int:
    """The rank that the operator's ``r`` stands for."""
    for (kind, number), argument in zip(operator.ranks, term.arguments, strict=False):
        if kind:
            return ranks[argument] - number
    return 0


def placement_after(
    term: Term, placements: Sequence[Placement], signature: Signature | None, rank: int
) -> Placement:
    """The placement of the operator's output.

    Raises:
        IllTyped: if it cannot be applied to inputs with these placements.
    """
    space, time = placements[0]
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
        case "shards" if placements[0] == placements[1] and space == WHOLE:
            return COPIES, time
    if signature is None:
        raise IllTyped
    return _space_after(placements, signature), _time_after(placements, signature)


def split_index(places: Sequence[int], signature: Signature) -> int | None:
    """The index that is split for inputs with these placements over devices; None for none.

    Raises:
        IllTyped: if no configuration of the operator has these placements.
    """
    if all(place == WHOLE for place in places) or all(place == COPIES for place in places):
        return None
    for index in signature.splittable:
        wanted = [split_dim(index, dims) for dims in signature.inputs]
        if all((COPIES if w is None else w) == p for w, p in zip(wanted, places, strict=True)):
            return index
    raise IllTyped


def _space_after(placements: Sequence[Placement], signature: Signature) -> int:
    places = [space for space, _ in placements]
    index = split_index(places, signature)
    if index is None:
        return places[0]
    place = split_dim(index, signature.output)
    return COPIES if place is None else place


def _time_after(placements: Sequence[Placement], signature: Signature) -> int:
    """The placement in time; an input without microbatches is used in each of them.

    No operator adds up over microbatches.
    """
    times = [time for _, time in placements]
    if all(time == WHOLE for time in times):
        return WHOLE
    for index in signature.splittable:
        wanted = [split_dim(index, dims) for dims in signature.inputs]
        place = split_dim(index, signature.output)
        if place is not None and times == [WHOLE if w is None else w for w in wanted]:
            return place
    raise IllTyped


def split_dim(index: int, dims: Sequence[Dim]) -> int | None:
    """The dimension that a split of an index splits: the index, or a product with it as major."""
    for place, dim in enumerate(dims):
        if dim == index or (isinstance(dim, tuple) and dim[0] == "prod" and dim[1] == index):
            return place
    return None


def _typed(
    terms: Sequence[Term], ranks: Mapping[Term, int], placements: Mapping[str, Placement]
) -> Typing:
    dimensions = Dimensions()
    types: dict[Term, TensorType] = {}
    for term in terms:
        for subterm in term.subterms():
            if subterm in types or subterm.operator == TUPLE:
                continue
            if subterm.operator == INPUT:
                dims = tuple(dimensions.new() for _ in range(ranks[subterm]))
                types[subterm] = TensorType(dims, placements[subterm.name])
            else:
                types[subterm] = _applied(
                    subterm, [types[a] for a in subterm.arguments], ranks, dimensions
                )
    outputs = [term.arguments if term.operator == TUPLE else (term,) for term in terms]
    for other in outputs[1:]:
        for a, b in zip(outputs[0], other, strict=True):
            _make_equal(types[a], types[b], dimensions)
    return Typing(
        {
            term: TensorType(tuple(map(dimensions.resolved, type_.dims)), type_.placement)
            for term, type_ in types.items()
        },
        ranks,
    )


def _make_equal(a: TensorType, b: TensorType, dimensions: Dimensions) -> None:
    if a.placement != b.placement or len(a.dims) != len(b.dims):
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
    placement = placement_after(
        term, [argument.placement for argument in arguments], signature, len(first.dims)
    )
    if signature is not None:
        named: dict[int, int] = {}
        for argument, wanted in zip(arguments, signature.inputs, strict=True):
            for x, y in zip(argument.dims, wanted, strict=True):
                dimensions.equal(x, dimensions.fresh(y, named))
        return TensorType(
            tuple(dimensions.fresh(dim, named) for dim in signature.output), placement
        )
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
    return TensorType(tuple(dims), placement)
