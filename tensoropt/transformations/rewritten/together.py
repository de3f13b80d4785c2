"""A substitution at many places of a graph, most of them in one pass over the graph.

The result is that of `application.apply` at one place after the other, which ranks do again. Places
wait for a common pass as long as none of them reads or replaces what another one replaces.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from tensoropt.graph.operator import Graph
from tensoropt.rewriting.substitutions import Substitution
from tensoropt.transformations.rewritten.application import (
    Replacement,
    Rewrite,
    apply,
    replacement_of,
    rewrite_of,
    with_replacements,
)
from tensoropt.transformations.rewritten.joined import join_nested, merge_equal
from tensoropt.transformations.rewritten.matching import Match, Matcher
from tensoropt.transformations.rewritten.needed import is_needed_in_order

__all__ = ["AtPlaces"]


class AtPlaces:
    """Applies a substitution at one place after the other.

    Args:
        graph: the graph in which the places were found.
        substitution: the substitution.
        roots: the operators that are run or fetched.
        is_over: whether time is over. Then further places are left out.

    Attributes:
        graph: the graph after the rewrites.
        rewrites: the rewrites in their order.
    """

    def __init__(
        self,
        graph: Graph,
        substitution: Substitution,
        roots: Collection[str],
        is_over: Callable[[], bool],
    ) -> None:
        self.graph = graph
        self.rewrites: list[Rewrite] = []
        self._substitution, self._roots, self._is_over = substitution, roots, is_over
        self._matcher = Matcher(graph)
        self._waiting: list[tuple[Rewrite, Replacement]] = []
        self._replaced: set[str] = set()  # operators whose outputs waiting places replace
        self._read: set[str] = set()  # operators that waiting places read

    def apply(self, places: Iterable[Match]) -> None:
        """Apply the substitution at some places."""
        for match in places:
            if self._is_over():
                break
            if self._is_gone(match):
                continue
            rewrite = rewrite_of(self._substitution, match)
            if not self._is_apart(match):
                self._flush()
                self._apply_alone(rewrite)
            elif (found := self._replacement(rewrite)) is not None:
                self._waiting.append((rewrite, found))
                self._replaced.update(tensor.operator for tensor in match.outputs)
                self._read.update(tensor.operator for _, tensor in match.inputs)
        self._flush()

    def _is_gone(self, match: Match) -> bool:
        """Whether a waiting place replaces the only output of the same operator."""
        gone = self._replaced.difference(self._roots)
        names = [tensor.operator for tensor in match.outputs if tensor.operator in gone]
        return any(len(self.graph[name].outputs) == 1 for name in names)

    def _is_apart(self, match: Match) -> bool:
        """Whether a place can wait with others for a common pass."""
        graph = self.graph
        bound = {tensor.operator for _, tensor in match.terms}
        if len(match.outputs) > 1 or not all(name in graph for name in bound):
            return False
        read = {name for inside in match.operators for name in graph[inside].predecessors}
        (output,) = match.outputs
        return self._replaced.isdisjoint(bound | read) and output.operator not in self._read

    def _replacement(self, rewrite: Rewrite) -> Replacement | None:
        found = replacement_of(self._matcher, self.graph, rewrite, self._substitution)
        is_large = found is not None and len(found.operators) > len(self.graph)
        return None if is_large else found

    def _flush(self) -> None:
        """Apply the substitution at the waiting places."""
        waiting, self._waiting = self._waiting, []
        self._replaced, self._read = set(), set()
        after = self._together([found for _, found in waiting]) if len(waiting) > 1 else None
        if after is not None:
            self.rewrites += [rewrite for rewrite, _ in waiting]
            self._set(after)
            return
        for rewrite, _ in waiting:
            self._apply_alone(rewrite)

    def _together(self, replacements: list[Replacement]) -> Graph | None:
        """The graph after all replacements; None if one pass does not make it."""
        if not is_needed_in_order(self.graph, frozenset(self._roots)):
            return None
        replaced = with_replacements(self.graph, replacements, self._roots)
        if replaced is None:
            return None
        merged = merge_equal(replaced, self._roots)
        return merged if join_nested(merged, self._roots) is merged else None

    def _apply_alone(self, rewrite: Rewrite) -> None:
        after = apply(self.graph, rewrite, self._substitution, self._roots)
        if after is not None and len(after) <= 2 * len(self.graph) + 64:
            self.rewrites.append(rewrite)
            self._set(after)

    def _set(self, graph: Graph) -> None:
        self.graph, self._matcher = graph, Matcher(graph)
