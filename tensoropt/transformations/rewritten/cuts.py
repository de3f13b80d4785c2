"""Positions at which concatenations and splits of a matched term cut its inputs.

A term is split where a concatenation has joined it. An input of a target may be split where the
source determines the position: in ``matmul(concat[1](x, y), z)`` the rows of ``z`` are cut as the
columns of the concatenation are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tensoropt.rewriting.terms import INPUT, Term

__all__ = ["cuts_of_inputs"]

Shape = tuple[int, ...]
_Place = tuple[Term, int]


def cuts_of_inputs(shapes: Mapping[Term, Shape]) -> dict[str, dict[int, int]]:
    """The size of the first part of each cut dimension, by input and dimension.

    Args:
        shapes: shapes of all subterms of a matched term.
    """
    parent: dict[_Place, _Place] = {}

    def find(place: _Place) -> _Place:
        while parent.setdefault(place, place) != place:
            place = parent[place]
        return place

    cuts: dict[_Place, int] = {}
    for term in shapes:
        for one, other in _equal_dims(term, shapes):
            parent[find(one)] = find(other)
    for term, shape in shapes.items():
        if term.operator == "concat":
            (dim,) = term.parameters
            cuts[find((term, dim))] = shapes[term.arguments[0]][dim]
        elif term.operator == "split":
            dim, part = term.parameters
            (whole,) = term.arguments
            first = shape[dim] if part == 0 else shapes[whole][dim] - shape[dim]
            cuts[find((whole, dim))] = first
    return {
        term.name: {
            dim: cuts[find((term, dim))] for dim in range(len(shape)) if find((term, dim)) in cuts
        }
        for term, shape in shapes.items()
        if term.operator == INPUT
    }


def _equal_dims(term: Term, shapes: Mapping[Term, Shape]) -> Iterator[tuple[_Place, _Place]]:
    """Pairs of dimensions, of a term and its arguments, that are the same index."""
    rank, arguments = len(shapes[term]), term.arguments
    if term.operator == "matmul":
        left, right = arguments
        yield from (((left, 1), (right, 0)), ((term, 0), (left, 0)), ((term, 1), (right, 1)))
    elif term.operator == "batch_matmul":
        left, right = arguments
        yield from (((left, 2), (right, 1)), ((term, 1), (left, 1)), ((term, 2), (right, 2)))
        yield from (((term, 0), (left, 0)), ((left, 0), (right, 0)))
    elif term.operator == "embedding":
        table, rows = arguments
        yield from (((term, 0), (rows, 0)), ((term, 1), (table, 1)))
    elif term.operator == "transpose":
        yield from (((term, new), (arguments[0], old)) for new, old in enumerate(term.parameters))
    elif term.operator in ("avg_pool", "max_pool"):
        yield from (((term, dim), (arguments[0], dim)) for dim in (0, 3))
    elif term.operator == "depthwise_conv":
        data, filters = arguments
        yield from (((data, 3), (filters, 2)), ((term, 3), (data, 3)), ((term, 0), (data, 0)))
    elif term.operator in ("flatten", "unflatten"):
        fewer, more = (term, arguments[0]) if term.operator == "flatten" else (arguments[0], term)
        for dim in range(len(shapes[fewer])):
            if dim != term.parameters[0]:
                yield (fewer, dim), (more, dim if dim < term.parameters[0] else dim + 1)
    elif term.operator == "conv":
        data, filters = arguments
        yield from (((data, 3), (filters, 2)), ((term, 3), (filters, 3)), ((term, 0), (data, 0)))
    elif term.operator in ("add", "mul", "relu", "softmax"):
        yield from (((term, dim), (argument, dim)) for argument in arguments for dim in range(rank))
    elif term.operator in ("bias_add", "scale"):
        yield from (((term, dim), (arguments[0], dim)) for dim in range(rank))
        if term.operator == "bias_add":
            yield (term, rank - 1), (arguments[1], 0)
    elif term.operator in ("concat", "split"):
        yield from (
            ((term, dim), (argument, dim))
            for argument in arguments
            for dim in range(rank)
            if dim != term.parameters[0]
        )
