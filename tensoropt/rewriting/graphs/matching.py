"""Where substitutions match in a logical graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from tensoropt.graph.operator import Graph, TensorName
from tensoropt.rewriting.graphs.views import COMMUTATIVE, View, views
from tensoropt.rewriting.substitutions import Substitution
from tensoropt.rewriting.terms import INPUT, TUPLE, Term

__all__ = ["Match", "Matcher", "outputs_of"]

Bound = Mapping[Term, TensorName]


@dataclass(frozen=True, slots=True)
class Match:
    """Tensors that a term stands for.

    Attributes:
        outputs: of the term, in its order.
        inputs: by name.
        function: TensorFlow's type of what is ``relu`` in the term.
        operators: names of the operators in it.
        terms: what each subterm stands for.
    """

    outputs: tuple[TensorName, ...]
    inputs: tuple[tuple[str, TensorName], ...]
    function: str
    operators: frozenset[str]
    terms: tuple[tuple[Term, TensorName], ...]


def outputs_of(term: Term) -> tuple[Term, ...]:
    """The terms of the outputs: of a `TUPLE` several."""
    return term.arguments if term.operator == TUPLE else (term,)


class Matcher:
    """Finds terms in a graph.

    Args:
        graph: where.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._views: dict[TensorName, tuple[View, ...]] = {}

    @cached_property
    def _made_by(self) -> dict[str, list[TensorName]]:
        """The tensors that each operator of terms makes, in the order of the graph."""
        found: dict[str, list[TensorName]] = {}
        for operator in self._graph:
            for number in range(len(operator.outputs)):
                tensor = TensorName(operator.name, number)
                for name in {view.operator for view in self._views_of(tensor)}:
                    found.setdefault(name, []).append(tensor)
        return found

    def matches(self, substitution: Substitution) -> Iterator[Match]:
        """All places of a substitution's source; of several outputs, different tensors in the order
        of the graph."""
        wanted = outputs_of(substitution.source)
        for found, function, outputs in self._from(wanted, (), {}, ""):
            match = self._match(substitution, outputs, found, function)
            if match is not None:
                yield match

    def at(
        self,
        substitution: Substitution,
        outputs: Sequence[TensorName],
        inputs: Mapping[str, TensorName],
    ) -> Match | None:
        """The source at certain tensors, if it is there."""
        term = substitution.source
        bound: dict[Term, TensorName] = {Term.input(name): t for name, t in inputs.items()}
        if any(tensor.operator not in self._graph for tensor in [*outputs, *inputs.values()]):
            return None
        states: list[tuple[Bound, str]] = [(bound, "")]
        for each, tensor in zip(outputs_of(term), outputs, strict=True):
            states = [after for state in states for after in self._matched(each, tensor, *state)]
        return self._match(substitution, tuple(outputs), *states[0]) if states else None

    def _from(
        self, wanted: tuple[Term, ...], outputs: tuple[TensorName, ...], bound: Bound, function: str
    ) -> Iterator[tuple[Bound, str, tuple[TensorName, ...]]]:
        if not wanted:
            yield bound, function, outputs
            return
        candidates = self._made_by.get(wanted[0].operator, [])
        start = candidates.index(outputs[-1]) + 1 if outputs and outputs[-1] in candidates else 0
        for tensor in candidates[start:]:
            for found, own in self._matched(wanted[0], tensor, bound, function):
                yield from self._from(wanted[1:], (*outputs, tensor), found, own)

    def _matched(
        self, term: Term, tensor: TensorName, bound: Bound, function: str
    ) -> Iterator[tuple[Bound, str]]:
        """What is bound once a term stands for a tensor."""
        if term in bound:
            if bound[term] == tensor:
                yield bound, function
            return
        if term.operator == INPUT:
            yield {**bound, term: tensor}, function
            return
        for view in self._views_of(tensor):
            if view.operator != term.operator or view.parameters != term.parameters:
                continue
            if view.function and function not in ("", view.function):
                continue
            orders = [view.arguments]
            if term.operator in COMMUTATIVE and len(set(view.arguments)) > 1:
                orders.append(view.arguments[::-1])
            for arguments in orders:
                states: list[tuple[Bound, str]] = [(bound, view.function or function)]
                for each, given in zip(term.arguments, arguments, strict=True):
                    states = [
                        after for state in states for after in self._matched(each, given, *state)
                    ]
                for found, own in states:
                    yield {**found, term: tensor}, own

    def _match(
        self,
        substitution: Substitution,
        outputs: tuple[TensorName, ...],
        bound: Bound,
        function: str,
    ) -> Match | None:
        """The match, where inputs have the ranks for which the substitution is proven."""
        inputs = tuple((each.name, bound[Term.input(each.name)]) for each in substitution.inputs)
        ranks = [len(self._graph.spec(tensor).shape) for _, tensor in inputs]
        if ranks != [each.rank for each in substitution.inputs]:
            return None
        inside = frozenset(t.operator for each, t in bound.items() if each.operator != INPUT)
        return Match(outputs, inputs, function, inside, tuple(bound.items()))

    def _views_of(self, tensor: TensorName) -> tuple[View, ...]:
        if tensor not in self._views:
            self._views[tensor] = tuple(views(self._graph, tensor))
        return self._views[tensor]
