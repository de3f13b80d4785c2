"""Kinds of operators: operators of a graph that differ only in names and places are of one kind."""

from __future__ import annotations

from collections.abc import Hashable
from functools import cache

from tensoropt.graph.operator import Graph, Operator
from tensoropt.graph.per_graph import per_graph
from tensoropt.parallel.choices.partial_operands import is_little, partial_operand_sets
from tensoropt.parallel.strategy import derivation_of
from tensoropt.tdl import Derivation
from tensoropt.tensor_spec import TensorSpec

__all__ = ["Kinds", "kinds_of"]

_NAMES = frozenset({"container", "debug_name", "shared_name"})
"""Attributes that name an operator and do not change its result."""

_COMPARED_BYTES = 64
"""Constants of at most this many bytes are equal if their values are. Larger constants are equal
only if they are the same array."""


class Kinds:
    """The kinds of a graph's operators.

    Operators of a kind have the same type, the same shapes, dtypes and values of tensors, the same
    attributes except names and hints, and change the same inputs. Results that do not depend on the
    rest of the graph are computed once for each kind.

    Args:
        graph: the operators.
        partial_operands: whether some operators may read partial sums
            (`tensoropt.parallel.choices.partial_operands`). They are of kinds of their own.

    Attributes:
        of: the number of every operator's kind.
        derivations: the derivation of every operator.
        derivation_numbers: a number of every operator's derivation, equal for equal derivations.
    """

    def __init__(self, graph: Graph, *, partial_operands: bool = False) -> None:
        self._specs: dict[int, int] = {}  # by id; the graph keeps the specs alive
        self._distinct_specs: dict[Hashable, int] = {}
        numbers: dict[Hashable, int] = {}
        derivations: list[Derivation] = []
        self.of: dict[str, int] = {}
        for name, operator in graph.operators.items():
            try:
                kind = numbers.setdefault(self._key(operator), len(numbers))
            except TypeError:  # an attribute is a list or an array, which is not hashable
                kind = numbers.setdefault(name, len(numbers))
            self.of[name] = kind
            if kind == len(derivations):
                derivations.append(derivation_of(operator))
        if partial_operands:
            self._separate_partial(graph, derivations)
        distinct: dict[Derivation, int] = {}
        number = [distinct.setdefault(derivation, len(distinct)) for derivation in derivations]
        self.derivations = {name: derivations[kind] for name, kind in self.of.items()}
        self.derivation_numbers = {name: number[kind] for name, kind in self.of.items()}

    def _separate_partial(self, graph: Graph, derivations: list[Derivation]) -> None:
        """Move operators that may read partial sums to kinds of their own."""
        numbers: dict[Hashable, int] = {}
        derivation_of_name = {name: derivations[kind] for name, kind in self.of.items()}
        for name, sets in partial_operand_sets(graph, derivation_of_name).items():
            along_all = is_little(graph[name])  # operators of a kind have equal sizes
            key = self.of[name], sets
            if key not in numbers:
                numbers[key] = len(derivations)
                derivations.append(derivation_of_name[name].on_shares(sets, along_all=along_all))
            self.of[name] = numbers[key]

    def _key(self, operator: Operator) -> Hashable:
        tag = operator.gradient
        # The attributes of a gradient only say which gradient it is.
        attributes = () if tag is not None else operator.attributes.items()
        numbers = self._specs
        return (
            operator.type,
            tuple([numbers.get(id(spec)) or self._spec(spec) for spec in operator.input_specs]),
            tuple([numbers.get(id(spec)) or self._spec(spec) for spec in operator.outputs]),
            # A set, since the order of attributes varies.
            frozenset([each for each in attributes if _matters(each[0])]),
            operator.mutates,
            None if tag is None else tag.part,
        )

    def _spec(self, spec: TensorSpec) -> int:
        """Give a spec its number, from 1 on. Equal specs have equal numbers."""
        value = spec.value
        if value is None:
            key: Hashable = spec.shape, spec.dtype
        elif value.nbytes <= _COMPARED_BYTES and not value.dtype.hasobject:
            key = spec.shape, spec.dtype, value.dtype.str, value.tobytes()
        else:
            key = id(value)
        number = self._distinct_specs.setdefault(key, 1 + len(self._distinct_specs))
        self._specs[id(spec)] = number
        return number


@per_graph
def kinds_of(graph: Graph, *, partial_operands: bool = False) -> Kinds:
    """Return the `Kinds` of a graph, which all callers share."""
    return Kinds(graph, partial_operands=partial_operands)


@cache
def _matters(attribute: str) -> bool:
    return attribute not in _NAMES and attribute[:1] != "_"
