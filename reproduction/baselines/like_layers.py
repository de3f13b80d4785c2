"""One name for a dimension of all like layers, as Mesh-TensorFlow's own programs have it.

A Mesh-TensorFlow program names a dimension once and uses the name in every layer: its Transformer
has one "d_ff", one "heads" and one "d_model" (Shazeer et al., 2018, section 6). `named_dimensions`
ties only dimensions that operators connect, so each layer's own dimensions have names of their own.
"""

from __future__ import annotations

import re
from collections.abc import Hashable

from tensoropt.problem.from_graph import GraphProblem
from tensoropt.search.baselines.named_dimensions import NamedDimensions

__all__ = ["one_name_for_like_layers"]

_NUMBER = re.compile(r"\d+")
_ATTENTION = re.compile(r"[a-z]+_attention")


def one_name_for_like_layers(problem: GraphProblem, free: NamedDimensions) -> NamedDimensions:
    """Give equal dimensions of like operators one name.

    Operators are alike if they have one type and their names differ in numbers alone, from the
    first component with a number on. Equal dimensions have one extent. Two dimensions of one
    operator keep two names.

    Args:
        problem: the planned problem.
        free: the names of dimensions that operators connect.
    """
    parent = list(range(free.count))
    owners: list[set[str]] = [set() for _ in parent]
    for owner, names in free.of_operator.items():
        for name in names:
            owners[name].add(owner)

    def find(name: int) -> int:
        while parent[name] != name:
            parent[name] = parent[parent[name]]
            name = parent[name]
        return name

    first: dict[Hashable, int] = {}
    for operator in problem.graph:
        indices = problem.derivations[operator.name].indices
        layer = _layer(operator.name)
        if layer is None:
            continue
        for number, name in enumerate(free.of_operator[operator.name]):
            key = operator.type, layer, number, indices[number].extent
            one, other = find(first.setdefault(key, name)), find(name)
            if one != other and owners[one].isdisjoint(owners[other]):
                parent[other] = one
                owners[one] |= owners[other]
    numbers: dict[int, int] = {}
    of_operator = {
        owner: tuple(numbers.setdefault(find(name), len(numbers)) for name in names)
        for owner, names in free.of_operator.items()
    }
    return NamedDimensions(of_operator, len(numbers))


def _layer(name: str) -> str | None:
    """The name of an operator within its layer, without numbers; None outside of layers.

    Attention to the sequence itself and to another one are like layers.
    """
    components = name.split("/")
    numbered = [place for place, each in enumerate(components[:-1]) if _NUMBER.search(each)]
    if not numbered:
        return None
    within = "/".join(components[numbered[0] :])
    return _ATTENTION.sub("attention", _NUMBER.sub("#", within))
