"""Operators of a graph that are alike in all but their names and places, by number."""

from __future__ import annotations

from collections.abc import Hashable
from functools import cache

from tensoropt.graph.operator import Graph, Operator
from tensoropt.parallel.choices.partial_operands import is_little, offered_sets
from tensoropt.parallel.strategy import derivation_of
from tensoropt.tdl import Derivation
from tensoropt.tensor_spec import TensorSpec

__all__ = ["Kinds"]

_NAMES = frozenset({"container", "debug_name", "shared_name"})
# Values up to this size are compared; of larger ones only the same array is the same.
_COMPARED_BYTES = 64


class Kinds:
    """The kinds of a graph's operators, and what follows from an operator's kind.

    Operators of a kind have one type, equal shapes, dtypes and values of tensors, equal attributes
    but names and hints, and change the same inputs. So what is worked out for one of them, apart
    from who reads what, holds for all.

    Args:
        graph: the operators.
        partial_operands: whether some may read partial sums
            (`tensoropt.parallel.choices.partial_operands`): these are of other kinds.

    Attributes:
        of: the number of every operator's kind.
        derivations: the iteration space of every operator.
        derivation_numbers: of every operator, equal where iteration spaces are.
    """

    def __init__(self, graph: Graph, *, partial_operands: bool = False) -> None:
        self._specs: dict[int, int] = {}  # by identity, as the graph keeps them
        self._unlike_specs: dict[Hashable, int] = {}
        numbers: dict[Hashable, int] = {}
        known: list[Derivation] = []
        self.of: dict[str, int] = {}
        for name, operator in graph.operators.items():
            try:
                kind = numbers.setdefault(self._key(operator), len(numbers))
            except TypeError:  # an attribute that is a list or an array: a kind of its own
                kind = numbers.setdefault(name, len(numbers))
            self.of[name] = kind
            if kind == len(known):
                known.append(derivation_of(operator))
        if partial_operands:
            self._offer_partial(graph, known)
        unlike: dict[Derivation, int] = {}
        number = [unlike.setdefault(derivation, len(unlike)) for derivation in known]
        self.derivations = {name: known[kind] for name, kind in self.of.items()}
        self.derivation_numbers = {name: number[kind] for name, kind in self.of.items()}

    def _offer_partial(self, graph: Graph, known: list[Derivation]) -> None:
        """Give operators that may read partial sums kinds of their own."""
        numbers: dict[Hashable, int] = {}
        derivations = {name: known[kind] for name, kind in self.of.items()}
        for name, sets in offered_sets(graph, derivations).items():
            along_all = is_little(graph[name])  # operators of a kind have equal sizes
            key = self.of[name], sets
            if key not in numbers:
                numbers[key] = len(known)
                known.append(derivations[name].on_shares(sets, along_all=along_all))
            self.of[name] = numbers[key]

    def _key(self, operator: Operator) -> Hashable:
        tag = operator.gradient
        attributes = () if tag is not None else operator.attributes.items()
        known = self._specs
        return (
            operator.type,
            tuple([known.get(id(spec)) or self._spec(spec) for spec in operator.input_specs]),
            tuple([known.get(id(spec)) or self._spec(spec) for spec in operator.outputs]),
            # In whatever order; a gradient's own say which it is.
            frozenset([each for each in attributes if _matters(each[0])]),
            operator.mutates,
            None if tag is None else tag.part,
        )

    def _spec(self, spec: TensorSpec) -> int:
        """The number of a spec that was not seen before, from 1 on."""
        value = spec.value
        if value is None:
            key: Hashable = spec.shape, spec.dtype
        elif value.nbytes <= _COMPARED_BYTES and not value.dtype.hasobject:
            key = spec.shape, spec.dtype, value.dtype.str, value.tobytes()
        else:
            key = id(value)
        number = self._unlike_specs.setdefault(key, 1 + len(self._unlike_specs))
        self._specs[id(spec)] = number
        return number


@cache
def _matters(attribute: str) -> bool:
    return attribute not in _NAMES and attribute[:1] != "_"
