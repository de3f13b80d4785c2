"""Sizes of the variables in a substitution's types, from the shapes of the tensors of a match.

A substitution holds only if parts are cut alike. The types of ``concat[0](split[0,0](x),
split[0,1](x)) = x`` express that: ``x`` has a dimension ("cat", a, b), and its parts have a and b.
If a script splits ``x`` into three, the first and the last part do not match.
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
    """The size of each variable, as far as shapes tell; None if parts of a dimension have other
    sizes than the types require.

    Extents of a dimension that is not split into parts may differ, such as those of images before
    and after a convolution with strides.

    Args:
        substitution: the matching substitution.
        shapes: shapes of the subterms of its source.
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
    """The shape of a term of the target; None if a size is not known."""
    extents = [_size(dim, sizes) for dim in substitution.typing.types[term].dims]
    known = tuple(size for size in extents if size is not None)
    return known if len(known) == len(extents) else None


_STRUCTURED = frozenset({"concat", "split", "flatten", "unflatten"})


def _put(dim: Dim, extent: int, sizes: dict[int, int]) -> bool:
    """Derive sizes from the extent of one dimension; False if they contradict each other."""
    if isinstance(dim, int):
        return sizes.setdefault(dim, extent) == extent and extent > 0
    one, other = (_size(part, sizes) for part in dim[1:])
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
    one, other = (_size(part, sizes) for part in dim[1:])
    if one is None or other is None:
        return None
    return one + other if dim[0] == "cat" else one * other
