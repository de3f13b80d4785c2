"""The devices of a stage."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["devices_of_stage"]


def devices_of_stage(
    number: int, sizes: Sequence[int], copies: int, order: Sequence[int] = ()
) -> tuple[int, ...]:
    """Return the devices of a stage in all copies of the pipeline, in the order of its mesh.

    Args:
        number: the number of the stage.
        sizes: the devices of each stage in a copy.
        copies: the number of copies.
        order: the devices that the stages take, one copy after the other; empty if stages take them
            in the order of their numbers.
    """
    first, size = sum(sizes[:number]), sum(sizes)
    places = (
        copy * size + first + place for copy in range(copies) for place in range(sizes[number])
    )
    return tuple(order[place] if order else place for place in places)
