"""Sizes of the variables in a substitution's types, from the shapes of the tensors of a match.

A substitution holds where parts are cut alike. ``concat[0](split[0,0](x), split[0,1](x)) = x`` says
so by types: ``x`` has a dimension ("cat", a, b), its parts have a and b. A script may split ``x``
into three, of which the first and the last are no such two parts.
"""

from __future__ import annotations

from collections.abc import Mapping

from tensoropt.rewriting.algebra.dimensions import variables_of
from tensoropt.rewriting.operators import Dim
from tensoropt.rewriting.substitutions import Substitution
from tensoropt.rewriting.terms import TUPLE, Term

__all__ = ["shape_of", "sizes_of"]

Shape = tuple[int, ...]


def sizes_of(substitution: Substitution, shapes: Mapping[Term, Shape]) -> dict[int, int] | None:
    """By variable its size, as far as shapes say; None where a dimension that falls into parts does
    not have their sizes.

    Of a dimension that falls into no parts the shapes may differ, as those of images before and
    behind a convolution with strides.

    Args:
        substitution: which matches.
        shapes: of the subterms of its source.
    """
    if not any(term.operator in _STRUCTURED for term in substitution.source.subterms()):
        return {}
    types = substitution.typing.types
    pairs = [
        pair
        for term, shape in shapes.items()
        if term.operator != TUPLE
        for pair in zip(types[term].dims, shape, strict=True)
    ]
    compound = [(dim, extent) for dim, extent in pairs if not isinstance(dim, int)]
    inside = {variable for dim, _ in compound for variable in variables_of(dim)}
    sizes: dict[int, int] = {}
    for dim, extent in pairs:
        if isinstance(dim, int) and sizes.setdefault(dim, extent) != extent and dim in inside:
            return None
    before = -1
    while before != len(sizes):
        before = len(sizes)
        if not all(_put(dim, extent, sizes) for dim, extent in compound):
            return None
    return sizes


def shape_of(substitution: Substitution, term: Term, sizes: Mapping[int, int]) -> Shape | None:
    """The shape of a term of the target; None where a size is not known."""
    found = [_size(dim, sizes) for dim in substitution.typing.types[term].dims]
    known = tuple(size for size in found if size is not None)
    return known if len(known) == len(found) else None


_STRUCTURED = frozenset({"concat", "split", "flatten", "unflatten"})


def _put(dim: Dim, extent: int, sizes: dict[int, int]) -> bool:
    """Find sizes from that of one dimension; False where they contradict each other."""
    if isinstance(dim, int):
        return sizes.setdefault(dim, extent) == extent and extent > 0
    one, other = (_size(each, sizes) for each in dim[1:])
    if one is not None and other is not None:
        return extent == (one + other if dim[0] == "cat" else one * other)
    for known, unknown in ((one, dim[2]), (other, dim[1])):
        if known is not None:
            if dim[0] == "cat":
                return known < extent and _put(unknown, extent - known, sizes)
            return known > 0 and not extent % known and _put(unknown, extent // known, sizes)
    return True


def _size(dim: Dim, sizes: Mapping[int, int]) -> int | None:
    if isinstance(dim, int):
        return sizes.get(dim)
    one, other = (_size(each, sizes) for each in dim[1:])
    if one is None or other is None:
        return None
    return one + other if dim[0] == "cat" else one * other
