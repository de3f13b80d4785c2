"""Proofs that two terms are equal, from properties. This module finds typed instances, and Z3
decides.

The properties are first-order sentences: for all tensors of certain types two terms are equal.
Types are no part of the logic, so this module makes instances of the properties that have types,
given the types of the terms' inputs. It matches terms in a graph of classes of equal terms with the
properties' triggers, for a few rounds (E-matching, de Moura and Bjorner 2007). Z3 then has to
refute, from these equations without variables, that the two terms differ. The equations that it
needs, an unsatisfiable core, are the proof. `recheck` also lets Z3 derive each of these equations
from its quantified property.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tensoropt.rewriting.algebra.dimensions import IllTyped
from tensoropt.rewriting.algebra.typing import TensorType, Typing, infer, type_of
from tensoropt.rewriting.terms import INPUT, TUPLE, Term
from tools.rewriting.properties.catalogue import properties, property_named
from tools.rewriting.properties.equation import Equation

__all__ = ["Instance", "Proof", "Rules", "prove", "recheck"]

ROUNDS = 6
MOST_NODES = 600


@dataclass(frozen=True)
class Instance:
    """An equation of a property with terms for its inputs.

    Attributes:
        name: name of the property.
        equation: the equation of the property.
        left, right: its sides with these terms.
    """

    name: str
    equation: Equation
    left: Term
    right: Term


@dataclass(frozen=True)
class Proof:
    """Instances from which the equality of two terms follows.

    Attributes:
        source, target: the terms.
        instances: as few instances as Z3 found sufficient.
    """

    source: Term
    target: Term
    instances: tuple[Instance, ...]

    @property
    def properties(self) -> tuple[str, ...]:
        """The names of the properties, sorted."""
        return tuple(sorted({each.name for each in self.instances}))


def prove(
    source: Term, target: Term, typing: Typing | None = None, names: Sequence[str] | None = None
) -> Proof | None:
    """A proof that two terms are equal for all tensors of their types; None if none is found.

    Args:
        source, target: the terms; tuples are equal if their elements are.
        typing: the types; None for the most general ones.
        names: names of the properties that may be used; None for all.
    """
    if typing is None:
        try:
            typing = infer(source, target)
        except IllTyped:
            return None
    rules = _rules(None if names is None else frozenset(names))
    graph = _Graph(typing)
    pairs = _outputs(source, target)
    if not graph.reaches(source, target, rules, ROUNDS):
        return None
    instances = _core(pairs, graph.instances)
    return None if instances is None else Proof(source, target, instances)


class Rules:
    """Equations, added one by one, from which other equations are derived."""

    def __init__(self) -> None:
        self._by_root: dict[tuple[str, tuple[int, ...]], list[tuple[str, Equation, Term]]] = {}

    def add(self, equation: Equation) -> None:
        """Add an equation."""
        for trigger in equation.triggers:
            root = (trigger.operator, trigger.parameters)
            self._by_root.setdefault(root, []).append(("", equation, trigger))

    def give(self, source: Term, target: Term, typing: Typing) -> bool:
        """Whether two terms are equal by these equations within a few rounds."""
        return _Graph(typing, 200).reaches(source, target, self._by_root, 2)


def _outputs(source: Term, target: Term) -> list[tuple[Term, Term]]:
    if source.operator == TUPLE:
        return list(zip(source.arguments, target.arguments, strict=True))
    return [(source, target)]


_Rules = Mapping[tuple[str, tuple[int, ...]], list[tuple[str, Equation, Term]]]
_KNOWN_RULES: dict[frozenset[str] | None, _Rules] = {}


def _rules(names: frozenset[str] | None) -> _Rules:
    """Equations by the operator at the root of a trigger."""
    if names not in _KNOWN_RULES:
        found: dict[tuple[str, tuple[int, ...]], list[tuple[str, Equation, Term]]] = {}
        for each in properties():
            if names is None or each.name in names:
                for equation in each.equations:
                    for trigger in equation.triggers:
                        root = (trigger.operator, trigger.parameters)
                        found.setdefault(root, []).append((each.name, equation, trigger))
        _KNOWN_RULES[names] = found
    return _KNOWN_RULES[names]


_Node = tuple[str, tuple[int, ...], tuple[int, ...]]


class _Graph:
    """Classes of equal terms, closed under congruence; all terms of a class have one type.

    A class is a number; `_find` returns the number of the class with which it was joined. Inputs
    are nodes without arguments, with their names as operators.
    """

    def __init__(self, typing: Typing, most_nodes: int = MOST_NODES) -> None:
        self._most_nodes = most_nodes
        self.instances: list[Instance] = []
        self._typing = typing
        self._parent: list[int] = []
        self._type: list[TensorType] = []
        self._term: list[Term] = []  # the first term of each class
        self._nodes: dict[_Node, int] = {}
        self._of_class: dict[int, list[_Node]] = {}
        self._by_root: dict[tuple[str, tuple[int, ...]], list[_Node]] = {}
        self._tried: set[tuple[int, tuple[int, ...]]] = set()

    def add(self, term: Term) -> int:
        """The class of a term.

        Raises:
            IllTyped: if the term has no type.
        """
        if term.operator == INPUT:
            return self._node(("", (), ()), term, self._typing.input(term.name), term.name)
        arguments = [self.add(each) for each in term.arguments]
        if term.operator == TUPLE:
            return -1
        return self._apply(term.operator, term.parameters, arguments)

    def reaches(self, source: Term, target: Term, rules: _Rules, rounds: int) -> bool:
        """Whether two terms become equal within ``rounds`` rounds of the rules."""
        for term in (source, target):
            self.add(term)
        pairs = _outputs(source, target)
        for _ in range(rounds):
            if all(self.same(a, b) for a, b in pairs) or not self.expand(rules):
                break
        return all(self.same(a, b) for a, b in pairs)

    def same(self, a: Term, b: Term) -> bool:
        return self._find(self.add(a)) == self._find(self.add(b))

    def _apply(self, operator: str, parameters: tuple[int, ...], arguments: Sequence[int]) -> int:
        node = (operator, parameters, tuple(map(self._find, arguments)))
        if node in self._nodes:
            return self._find(self._nodes[node])
        terms = tuple(self._term[each] for each in node[2])
        term = Term(operator, terms, parameters)
        return self._node(node, term, type_of(term, [self._type[each] for each in node[2]]))

    def _node(self, node: _Node, term: Term, found: TensorType, name: str = "") -> int:
        node = (name or node[0], node[1], node[2])
        if node not in self._nodes:
            self._nodes[node] = number = len(self._parent)
            self._parent.append(number)
            self._type.append(found)
            self._term.append(term)
            self._of_class[number] = [node]
            self._by_root.setdefault(node[:2], []).append(node)
        return self._find(self._nodes[node])

    def _find(self, number: int) -> int:
        while self._parent[number] != number:
            self._parent[number] = self._parent[self._parent[number]]
            number = self._parent[number]
        return number

    def expand(self, rules: _Rules) -> bool:
        """Try every equation once for all matches of its triggers; return whether the graph
        changed."""
        matches = []
        for root, nodes in self._by_root.items():
            for name, equation, trigger in rules.get(root, ()):
                for node in nodes:
                    for found in self._match_all(trigger.arguments, node[2], {}):
                        matches.append((name, equation, found))
        before = len(self._parent), len(self.instances)
        for name, equation, found in matches:
            if len(self._parent) >= self._most_nodes:
                break
            self._instantiate(name, equation, found)
        self._rebuild()
        return (len(self._parent), len(self.instances)) != before

    def _instantiate(self, name: str, equation: Equation, found: Mapping[str, int]) -> None:
        """Add the equation with classes for its inputs, if it then has a type."""
        key = (id(equation), tuple(self._find(found[n]) for n in equation.left.inputs))
        if key in self._tried:
            return
        self._tried.add(key)
        if any(len(self._type[found[n]].dims) != rank for n, rank in equation.ranks if n in found):
            return
        terms = {Term.input(n): self._term[self._find(c)] for n, c in found.items()}
        left, right = equation.left.replaced(terms), equation.right.replaced(terms)
        try:
            if not (self._has_type(left) and self._has_type(right)):
                return
            a, b = self.add(left), self.add(right)
        except IllTyped:
            return
        if self._type[a] != self._type[b]:
            return
        self.instances.append(Instance(name, equation, left, right))
        self._union(a, b)

    def _has_type(self, term: Term) -> bool:
        self._type_of_term(term)
        return True

    def _type_of_term(self, term: Term) -> TensorType:
        if term.operator == INPUT:
            return self._typing.input(term.name)
        return type_of(term, [self._type_of_term(each) for each in term.arguments])

    def _union(self, a: int, b: int) -> None:
        a, b = self._find(a), self._find(b)
        if a == b:
            return
        if b < a:
            a, b = b, a
        self._parent[b] = a
        self._of_class[a] += self._of_class.pop(b)

    def _rebuild(self) -> None:
        """Join nodes with equal operators and arguments."""
        changed = True
        while changed:
            changed = False
            nodes: dict[_Node, int] = {}
            for node, number in self._nodes.items():
                new = (node[0], node[1], tuple(map(self._find, node[2])))
                other = nodes.setdefault(new, number)
                if self._find(other) != self._find(number):
                    self._union(other, number)
                    changed = True
            self._nodes = nodes
        self._of_class = {}
        self._by_root = {}
        for node, number in self._nodes.items():
            self._of_class.setdefault(self._find(number), []).append(node)
            self._by_root.setdefault(node[:2], []).append(node)

    def _match_all(
        self, patterns: Sequence[Term], classes: Sequence[int], found: dict[str, int]
    ) -> Iterator[dict[str, int]]:
        if len(patterns) != len(classes):
            return
        if not patterns:
            yield found
            return
        for one in self._match(patterns[0], self._find(classes[0]), found):
            yield from self._match_all(patterns[1:], classes[1:], one)

    def _match(self, pattern: Term, number: int, found: dict[str, int]) -> Iterator[dict[str, int]]:
        if pattern.operator == INPUT:
            known = found.get(pattern.name)
            if known is None:
                yield {**found, pattern.name: number}
            elif self._find(known) == number:
                yield found
            return
        for node in self._of_class.get(number, ()):
            if node[0] == pattern.operator and node[1] == pattern.parameters:
                yield from self._match_all(pattern.arguments, node[2], found)


class _Logic:
    """Terms in Z3: one sort, and a function for each operator with its parameters."""

    def __init__(self) -> None:
        import z3

        self.z3: Any = z3
        self._tensor = z3.DeclareSort("Tensor")
        self._functions: dict[object, Any] = {}

    def term(self, term: Term, inputs: Mapping[str, Any] | None = None) -> Any:
        if term.operator == INPUT:
            if inputs is not None:
                return inputs[term.name]
            return self.constant(term.name)
        key = (term.operator, term.parameters, len(term.arguments))
        if key not in self._functions:
            name = f"{term.operator}{list(term.parameters)}"
            sorts = [self._tensor] * (len(term.arguments) + 1)
            self._functions[key] = self.z3.Function(name, *sorts)
        return self._functions[key](*(self.term(each, inputs) for each in term.arguments))

    def constant(self, name: str) -> Any:
        return self.z3.Const(name, self._tensor)

    def sentence(self, equation: Equation) -> Any:
        """The equation for all inputs."""
        names = tuple(dict.fromkeys((*equation.left.inputs, *equation.right.inputs)))
        inputs = {name: self.constant(f"any {name}") for name in names}
        sides = self.term(equation.left, inputs) == self.term(equation.right, inputs)
        return self.z3.ForAll(list(inputs.values()), sides)


def _core(
    pairs: Sequence[tuple[Term, Term]], instances: Sequence[Instance]
) -> tuple[Instance, ...] | None:
    """The instances that Z3 needs to refute that the pairs differ; None if it cannot."""
    logic = _Logic()
    solver = logic.z3.Solver()
    solver.set("core.minimize", True)
    named = {f"i{n}": each for n, each in enumerate(instances)}
    for name, each in named.items():
        solver.assert_and_track(logic.term(each.left) == logic.term(each.right), name)
    solver.add(logic.z3.Or([logic.term(a) != logic.term(b) for a, b in pairs]))
    if solver.check() != logic.z3.unsat:
        return None
    return tuple(named[str(each)] for each in solver.unsat_core())


def recheck(source: Term, target: Term, names: Sequence[str], typing: Typing) -> bool:
    """Whether the named properties prove the terms equal, with each step checked by Z3.

    Args:
        source, target: the terms.
        names: names of the properties.
        typing: the types at which the terms are equal.
    """
    proof = prove(source, target, typing, names)
    if proof is None:
        return False
    logic = _Logic()
    for each in proof.instances:
        if each.equation not in property_named(each.name).equations:
            return False
        solver = logic.z3.Solver()
        solver.add(logic.sentence(each.equation), logic.term(each.left) != logic.term(each.right))
        if solver.check() != logic.z3.unsat:
            return False
    return True
