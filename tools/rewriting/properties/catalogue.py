"""All properties."""

from __future__ import annotations

from functools import cache

from tools.rewriting.properties.elements import of_concatenations, of_elements
from tools.rewriting.properties.equation import Property
from tools.rewriting.properties.parallelization import of_parallelization
from tools.rewriting.properties.products import of_images, of_products
from tools.rewriting.properties.reshapes import of_reshapes
from tools.rewriting.properties.sums import of_tables_and_sums

__all__ = ["properties", "property_named"]


@cache
def properties() -> tuple[Property, ...]:
    """All properties, the algebraic ones first; no two have one name."""
    return (
        *of_elements(),
        *of_products(),
        *of_concatenations(),
        *of_reshapes(),
        *of_images(),
        *of_tables_and_sums(),
        *of_parallelization(),
    )


@cache
def _by_name() -> dict[str, Property]:
    return {each.name: each for each in properties()}


def property_named(name: str) -> Property:
    """The property of that name.

    Raises:
        KeyError: if there is none.
    """
    return _by_name()[name]
