"""Atomic components: the smallest parts of which stages are made (RaNNC, section III-A).

The forward pass of a training step is cut into stages. It consists of the operators on which a
differentiated tensor depends; in a step without gradients, of all operators. The graph does not
hold the operators of the backward pass: the gradient of an operator runs where the operator runs.

A variable, its optimizer's slots, its gradient and their updates are one `State`. Every component
that reads the variable holds the state. If the forward pass does not read a variable (a moving
average), the last component on which its update depends holds the state. Operators of no component
(counters, a norm over all gradients) are listed in `Atoms.rest`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from tensoropt.errors import GraphError
from tensoropt.graph.operator import Graph, Operator, TensorName
from tensoropt.graph.tied_operators import leaders
from tensoropt.tdl.ops.random import RANDOM_TYPES

__all__ = ["Atom", "Atoms", "State", "atomic_components"]


@dataclass(frozen=True, slots=True)
class Atom:
    """One operator that depends on the batch (the task), and the constants that it needs.

    Attributes:
        operator: the name of the task.
        constants: operators that do not depend on the batch, in topological order: constants, reads
            of variables, and operators that compute with these. Atoms that need the same constant
            have a copy each.
        states: the variables among the constants, by the name of their `State`.
        fed: the placeholders that the task or its constants read.
    """

    operator: str
    constants: tuple[str, ...] = ()
    states: tuple[str, ...] = ()
    fed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class State:
    """A variable with its slots, its gradient and their updates.

    Attributes:
        variables: the variable and its optimizer's slots, in the graph's order.
        gradients: the operators that stand for the gradient.
        updates: the operators after the forward pass that update the variables.
        atoms: the numbers of the components that hold the state. Tied weights have several.
    """

    variables: tuple[str, ...]
    gradients: tuple[str, ...]
    updates: tuple[str, ...]
    atoms: tuple[int, ...]

    @property
    def shared(self) -> bool:
        """Whether several components hold the state. They may be in different stages."""
        return len(self.atoms) > 1


@dataclass(frozen=True, slots=True, eq=False)
class Atoms:
    """The atomic components of a step, in topological order.

    Attributes:
        graph: the step.
        atoms: the components.
        edges: producer, reader and tensor of every read between components. The tensor is None if
            the reader only waits for the producer.
        states: the states by name, which is that of the first variable.
        rest: the operators of no component.
    """

    graph: Graph
    atoms: tuple[Atom, ...]
    edges: tuple[tuple[int, int, TensorName | None], ...]
    states: Mapping[str, State] = field(default_factory=dict)
    rest: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.atoms)


def atomic_components(graph: Graph, batch_inputs: Collection[str]) -> Atoms:
    """Cut the forward pass of a step into components, each with one task.

    As in section III-A, a pass forward from the placeholders finds the tasks that depend on the
    batch. Then each task gets the constants that it needs. A placeholder is no task: every stage is
    fed the placeholders that it reads. Random operators are tasks, since a copy would draw other
    numbers.

    Args:
        graph: one training step, shapes bound.
        batch_inputs: placeholders whose first dimension is the batch.

    Raises:
        GraphError: if no operator of the forward pass depends on the batch.
    """
    return _Cut(graph, frozenset(batch_inputs)).atoms()


class _Cut:
    """The work of `atomic_components`, on one graph."""

    def __init__(self, graph: Graph, batch_inputs: frozenset[str]) -> None:
        self._graph = graph
        self._leader_of = leaders(graph)
        self._places = {name: place for place, name in enumerate(graph.operators)}
        self._forward = _forward(graph)
        depends: set[str] = set(batch_inputs)
        self._number: dict[str, int] = {}
        for operator in graph:
            if operator.name not in self._forward or operator.name in batch_inputs:
                continue
            if operator.type in RANDOM_TYPES or any(
                tensor.operator in depends for tensor in operator.inputs
            ):
                depends.add(operator.name)
                self._number[operator.name] = len(self._number)
        if not self._number:
            raise GraphError(
                "a step that becomes a pipeline has operators that depend on its batch. Got a "
                f"graph of {len(graph)} operators, none of which depends on "
                f"{sorted(batch_inputs)}; check which placeholders feed the batch."
            )

    def atoms(self) -> Atoms:
        """Return the components, their edges and their states."""
        atoms, edges = [], []
        readers: dict[str, list[int]] = {}
        for name, number in self._number.items():
            operator = self._graph[name]
            atom = self._atom(operator)
            atoms.append(atom)
            for state in atom.states:
                readers.setdefault(state, []).append(number)
            for member in (name, *atom.constants):
                edges += self._edges_into(self._graph[member], number)
        states, rest = self._states(readers)
        edges = list(dict.fromkeys(edges))
        return Atoms(self._graph, tuple(atoms), tuple(edges), states, rest)

    def _atom(self, operator: Operator) -> Atom:
        """Return the component of a task, with its constants."""
        constants, fed = set(), set()
        waiting = list(operator.predecessors)
        while waiting:
            name = waiting.pop()
            if name in constants or name in self._number or name not in self._graph:
                continue
            if self._graph[name].is_placeholder:
                fed.add(name)
                continue
            constants.add(name)
            waiting += self._graph[name].predecessors
        ordered = sorted(constants, key=self._places.__getitem__)
        states = dict.fromkeys(
            self._leader_of[name] for name in ordered if self._graph[name].is_variable
        )
        return Atom(
            operator.name,
            tuple(ordered),
            tuple(states),
            tuple(sorted(fed, key=self._places.__getitem__)),
        )

    def _edges_into(
        self, operator: Operator, number: int
    ) -> list[tuple[int, int, TensorName | None]]:
        """Return the edges into a component that one of its operators causes."""
        edges: list[tuple[int, int, TensorName | None]] = [
            (self._number[tensor.operator], number, tensor)
            for tensor in operator.inputs
            if tensor.operator in self._number
        ]
        edges += [
            (self._number[name], number, None)
            for name in operator.control_inputs
            if name in self._number
        ]
        return edges

    def _states(self, readers: Mapping[str, list[int]]) -> tuple[dict[str, State], tuple[str, ...]]:
        """Return the states by the leader of their variables, and the operators of no component.

        Args:
            readers: the components that read the variables of each leader.
        """
        tied: dict[str, list[Operator]] = {}
        for operator in self._graph:
            leader = self._leader_of[operator.name]
            if self._graph[leader].is_variable:
                tied.setdefault(leader, []).append(operator)
        last, owners = self._last_needed(), self._owners()
        owned: dict[str, list[str]] = {}
        for name, owner in owners.items():
            owned.setdefault(owner, []).append(name)
        states: dict[str, State] = {}
        held = {*self._forward, *self._number}
        for leader, operators in tied.items():
            updates = [o.name for o in operators if self._is_update(o)]
            updates = sorted({*updates, *owned.get(leader, ())}, key=self._places.__getitem__)
            atoms = readers.get(leader) or [max((last.get(n, -1) for n in updates), default=-1)]
            if atoms == [-1]:
                continue
            states[leader] = State(
                tuple(o.name for o in operators if o.is_variable),
                tuple(o.name for o in operators if o.gradient is not None),
                tuple(updates),
                tuple(sorted(set(atoms))),
            )
            held.update((*updates, *(o.name for o in operators)))
        return states, tuple(o.name for o in self._graph if o.name not in held)

    def _is_update(self, operator: Operator) -> bool:
        """Whether an operator follows the forward pass, and is neither variable nor gradient."""
        follows = operator.name not in self._forward and operator.gradient is None
        return follows and not operator.is_variable

    def _owners(self) -> dict[str, str]:
        """Return the state that each update works for, of updates that work for a single state.

        Updates that share the leader of a variable are left out: their state is known.
        """
        owners: dict[str, set[str]] = {}
        single: dict[str, str] = {}
        for operator in reversed(list(self._graph)):
            name = operator.name
            leader = self._leader_of[name]
            if self._graph[leader].is_variable:
                states = {leader}
            else:
                states = owners.get(name, set())
                if len(states) == 1 and self._is_update(operator):
                    (single[name],) = states
            if self._is_update(operator):
                for needed in operator.predecessors:
                    # Two owners suffice to show that there is no single one.
                    if len(owners.setdefault(needed, set())) < 2:
                        owners[needed] |= states if len(states) < 2 else set(sorted(states)[:2])
        return single

    def _last_needed(self) -> dict[str, int]:
        """Return the last component that each operator depends on, except through gradients."""
        last = dict(self._number)
        for operator in self._graph:
            if operator.name in last or operator.gradient is not None:
                continue
            needed = [last[name] for name in operator.predecessors if name in last]
            if needed:
                last[operator.name] = max(needed)
        return last


def _forward(graph: Graph) -> frozenset[str]:
    """Return the operators of the forward pass."""
    waiting = [y.operator for o in graph if o.gradient is not None for y in o.gradient.ys]
    if not waiting:
        return frozenset(graph.operators)
    forward: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name not in forward and name in graph:
            forward.add(name)
            waiting += graph[name].predecessors
    return frozenset(forward)
