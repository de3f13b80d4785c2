"""Matching of substitutions in a logical graph."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain, product

from tensoropt.graph.operator import Graph, Operator, TensorName
from tensoropt.rewriting.substitutions import Substitution
from tensoropt.rewriting.terms import INPUT, Term
from tensoropt.transformations.rewritten.parts import operator_of
from tensoropt.transformations.rewritten.patterns import Head, Patterns, outputs_of, structure_of
from tensoropt.transformations.rewritten.sizes import sizes_of
from tensoropt.transformations.rewritten.views import (
    COMMUTATIVE,
    TYPES_WITH_VIEWS,
    Kind,
    View,
    types_of,
    views,
)

__all__ = ["Match", "Matcher"]

_Bound = Mapping[Term, TensorName]
_Kinds = Mapping[str, Kind]


@dataclass(frozen=True, slots=True)
class Match:
    """A place in a graph where a substitution's source stands.

    Attributes:
        outputs: the tensors of the source's outputs, in its order.
        inputs: the tensors of its inputs, by name.
        kinds: for each operator of terms that stands for several of TensorFlow's, the one here.
        operators: names of the graph's operators that the substitution replaces.
        terms: the tensor of each subterm.
        sizes: sizes of the variables in the types of terms, as far as they are known.
    """

    outputs: tuple[TensorName, ...]
    inputs: tuple[tuple[str, TensorName], ...]
    kinds: tuple[tuple[str, Kind], ...]
    operators: frozenset[str]
    terms: tuple[tuple[Term, TensorName], ...]
    sizes: Mapping[int, int]


class Matcher:
    """Finds substitutions' sources in a graph by backtracking.

    The tensors at which a structure (`patterns`) can stand are found once. They do not depend on
    names of inputs or on kinds of operators. Backtracking tries only these tensors.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._views: dict[TensorName, tuple[View, ...]] = {}
        self._computed: dict[str, dict[TensorName, int]] = {}
        self._can_be: dict[tuple[Term, TensorName], bool] = {}
        self._places: dict[Term, list[TensorName]] = {}
        self._parts: dict[str, Operator | None] = {}

    @cached_property
    def _by_type(self) -> dict[str, list[Operator]]:
        """The operators that have views, by type, in the order of the graph."""
        by_type: dict[str, list[Operator]] = {}
        for operator in self._graph:
            if operator.type in TYPES_WITH_VIEWS:
                by_type.setdefault(operator.type, []).append(operator)
        return by_type

    def _computed_by(self, name: str) -> dict[TensorName, int]:
        """The tensors that an operator of terms can compute, each with its position among them.

        They are ordered by TensorFlow's type, then as in the graph.
        """
        if name not in self._computed:
            tensors = [
                tensor
                for type_ in types_of(name)
                for operator in self._by_type.get(type_, ())
                for tensor in map(partial(TensorName, operator.name), range(len(operator.outputs)))
                if any(view.operator == name for view in self._views_of(tensor))
            ]
            self._computed[name] = {tensor: position for position, tensor in enumerate(tensors)}
        return self._computed[name]

    def _places_of(self, term: Term) -> list[TensorName]:
        """The tensors at which a term's structure can stand, in the order of `_computed_by`."""
        structure = structure_of(term)
        if structure not in self._places:
            self._places[structure] = [
                tensor
                for tensor in self._computed_by(term.operator)
                if self._stands(structure, tensor)
            ]
        return self._places[structure]

    def _stands(self, structure: Term, tensor: TensorName) -> bool:
        """Whether a structure can stand at a tensor."""
        if structure.operator == INPUT:
            return True
        key = structure, tensor
        if key not in self._can_be:
            self._can_be[key] = any(
                all(map(self._stands, structure.arguments, arguments))
                for view in self._views_of(tensor)
                if view.operator == structure.operator and view.parameters == structure.parameters
                for arguments in _orders(view)
            )
        return self._can_be[key]

    def fitting(self, patterns: Patterns) -> list[Substitution]:
        """The substitutions all of whose outputs may stand in the graph, judged by structure."""
        standing: set[Term] = set()
        for operator in chain.from_iterable(self._by_type.values()):
            for tensor in map(partial(TensorName, operator.name), range(len(operator.outputs))):
                for head in chain.from_iterable(map(self._heads, self._views_of(tensor))):
                    standing.update(
                        structure
                        for structure in patterns.of_head.get(head, ())
                        if structure not in standing and self._stands(structure, tensor)
                    )
        return patterns.among(standing)

    def _heads(self, view: View) -> Iterator[Head]:
        """The heads of the structures that can stand where a tensor has this view."""
        root = view.operator, view.parameters
        for arguments in _orders(view):
            roots = (
                {None, *((each.operator, each.parameters) for each in self._views_of(argument))}
                for argument in arguments
            )
            for below in product(*roots):
                yield root, below

    def matches(
        self, substitution: Substitution, among: Collection[str] | None = None
    ) -> Iterator[Match]:
        """All matches of a substitution's source.

        Outputs of the same operator of terms are tried in one order only, that of `_computed_by`.

        Args:
            substitution: the substitution.
            among: names of operators of the graph. At least one of them computes an output of each
                match; None for all matches.
        """
        wanted = outputs_of(substitution.source)
        if not all(map(self._places_of, wanted)):
            return
        for bound, kinds, outputs in self._from(wanted, (), {}, {}, among):
            match = self._match(substitution, outputs, bound, kinds)
            if match is not None:
                yield match

    def at(
        self,
        substitution: Substitution,
        outputs: Sequence[TensorName],
        inputs: Mapping[str, TensorName],
    ) -> Match | None:
        """The match of a substitution's source at given tensors; None if there is none."""
        term = substitution.source
        bound: dict[Term, TensorName] = {Term.input(name): t for name, t in inputs.items()}
        if any(self._operator(tensor) is None for tensor in [*outputs, *inputs.values()]):
            return None
        states: list[tuple[_Bound, _Kinds]] = [(bound, {})]
        for output, tensor in zip(outputs_of(term), outputs, strict=True):
            states = [after for state in states for after in self._matched(output, tensor, *state)]
        return self._match(substitution, tuple(outputs), *states[0]) if states else None

    def _from(
        self,
        wanted: tuple[Term, ...],
        outputs: tuple[TensorName, ...],
        bound: _Bound,
        kinds: _Kinds,
        among: Collection[str] | None,
    ) -> Iterator[tuple[_Bound, _Kinds, tuple[TensorName, ...]]]:
        if not wanted:
            yield bound, kinds, outputs
            return
        if among is not None and any(tensor.operator in among for tensor in outputs):
            among = None
        order = self._computed_by(wanted[0].operator)
        last = order.get(outputs[-1], -1) if outputs else -1
        for tensor in self._places_of(wanted[0]):
            if order[tensor] <= last:
                continue
            if among is not None and len(wanted) == 1 and tensor.operator not in among:
                continue
            for extended, chosen in self._matched(wanted[0], tensor, bound, kinds):
                yield from self._from(wanted[1:], (*outputs, tensor), extended, chosen, among)

    def _matched(
        self, term: Term, tensor: TensorName, bound: _Bound, kinds: _Kinds
    ) -> Iterator[tuple[_Bound, _Kinds]]:
        """All ways to bind a term to a tensor, and its subterms to tensors, beside those bound."""
        if term in bound:
            if bound[term] == tensor:
                yield bound, kinds
            return
        if term.operator == INPUT:
            yield {**bound, term: tensor}, kinds
            return
        if not self._stands(structure_of(term), tensor):
            return
        for view in self._views_of(tensor):
            if view.operator != term.operator or view.parameters != term.parameters:
                continue
            view_kinds = kinds
            if view.kind is not None:
                if kinds.get(term.operator, view.kind) != view.kind:
                    continue
                view_kinds = {**kinds, term.operator: view.kind}
            for arguments in _orders(view):
                states: list[tuple[_Bound, _Kinds]] = [(bound, view_kinds)]
                for subterm, given in zip(term.arguments, arguments, strict=True):
                    states = [
                        after for state in states for after in self._matched(subterm, given, *state)
                    ]
                for extended, chosen in states:
                    yield {**extended, term: tensor}, chosen

    def _match(
        self,
        substitution: Substitution,
        outputs: tuple[TensorName, ...],
        bound: _Bound,
        kinds: _Kinds,
    ) -> Match | None:
        """The match of some tensors of terms; None if the substitution is not proven for them.

        It is proven for inputs of certain ranks, and for parts of the sizes that its types require.
        """
        inputs = tuple((item.name, bound[Term.input(item.name)]) for item in substitution.inputs)
        ranks = [len(self.shape(tensor)) for _, tensor in inputs]
        if ranks != [item.rank for item in substitution.inputs]:
            return None
        sizes = sizes_of(substitution, {term: self.shape(t) for term, t in bound.items()})
        if sizes is None:
            return None
        inside = frozenset(t.operator for term, t in bound.items() if term.operator != INPUT)
        kinds_used = tuple(kinds.items())
        return Match(outputs, inputs, kinds_used, inside, tuple(bound.items()), sizes)

    def _operator(self, tensor: TensorName) -> Operator | None:
        name = tensor.operator
        if name in self._graph:
            return self._graph[name]
        if name not in self._parts:
            self._parts[name] = operator_of(self._graph, name)
        return self._parts[name]

    def shape(self, tensor: TensorName) -> tuple[int, ...]:
        """The shape of a tensor of the graph, or of one that could be added, see `parts`."""
        operator = self._operator(tensor)
        assert operator is not None, "views read only tensors that exist or can be added"
        return operator.outputs[tensor.index].shape

    def _views_of(self, tensor: TensorName) -> tuple[View, ...]:
        if tensor not in self._views:
            self._views[tensor] = tuple(views(self._graph, tensor))
        return self._views[tensor]


def _orders(view: View) -> list[tuple[TensorName, ...]]:
    """The orders of a view's arguments with the same result: two if the operator commutes."""
    is_symmetric = view.operator in COMMUTATIVE and len(set(view.arguments)) > 1
    return [view.arguments, view.arguments[::-1]] if is_symmetric else [view.arguments]
