"""Which splits hold for all sizes, -1 for an extent that only a run decides."""

from __future__ import annotations

import pytest

from tensoropt.tdl import Derivation, Index
from tensoropt.tdl.any_size import along_known, by_index, regrouped


def derivation(
    source: tuple[int, ...], target: tuple[int, ...], pairs: list[tuple[int, int]]
) -> Derivation:
    """A derivation of one input and one output, with an index for each pair of dimensions."""
    indices = tuple(Index(f"i{n}", 8, None, True) for n in range(len(pairs)))
    of_source = {i: n for n, (i, _) in enumerate(pairs)}
    of_target = {o: n for n, (_, o) in enumerate(pairs)}
    return Derivation(
        "Reshape",
        indices,
        (tuple(of_source.get(d) for d in range(len(source))),),
        (tuple(of_target.get(d) for d in range(len(target))),),
        (source,),
        (target,),
    )


@pytest.mark.parametrize(
    ("source", "target", "pair", "holds"),
    [
        ((8, -1, 16), (-1, 16), (0, 0), True),  # batch and length as rows
        ((-1, 16), (8, -1, 4, 4), (0, 0), True),  # and back, with heads
        ((8, -1, 16), (-1,), (0, 0), True),
        ((8, -1, 16), (-1, -1), (0, 0), False),  # rows of an unknown number of columns
        ((8, -1), (-1, 8), (0, 0), False),  # 8 need not divide the length
        ((8, -1, 16), (8, -1, 4, 4), (2, 2), True),  # columns to heads
        ((8, 4, -1, 4), (32, -1, 4), (0, 0), True),
        ((4, -1, 16), (-1, 4, 16), (0, 1), False),
        ((8, 12, -1), (8, 3, -1), (1, 1), False),
    ],
)
def test_reshapes(
    source: tuple[int, ...], target: tuple[int, ...], pair: tuple[int, int], holds: bool
) -> None:
    assert regrouped(derivation(source, target, [pair]), [2]) is holds
    assert regrouped(derivation(source, target, [pair]), [1])


def test_an_open_dimension_is_in_pieces_where_one_that_is_read_is() -> None:
    assert by_index(derivation((-1, 4), (-1, 4), [(0, 0), (1, 1)]), [2, 2])
    made = Derivation("Fill", (Index("i", 8, None, True),), ((None,),), ((0,),), ((1,),), ((-1,),))
    assert by_index(made, [1])
    assert not by_index(made, [2])


def test_known_dimensions_alone() -> None:
    known = derivation((4, -1), (4, -1), [(0, 0), (1, 1)])
    assert along_known(known, [2, 1])
    assert not along_known(known, [1, 2])
