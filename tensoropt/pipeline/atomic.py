"""Atomic components: the finest parts that stages are made of (RaNNC, section III-A).

Of a training step the forward pass is cut into stages: the operators that a differentiated tensor
depends on; in a step without gradients all of them. What the backward pass computes is not in the
graph, as gradients are cut where the script asked for them; an operator's gradient runs where the
operator does. What changes state follows: a variable, its optimizer's slots, its gradient and
their updates are one `State`, held by every component that reads the variable. State that nothing
of the forward pass reads (moving averages) is with the last component that its update depends on.
What belongs to no component (counters, a norm over all gradients) is listed apart.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from tensoropt.errors import GraphError
from tensoropt.graph.coarsen import leaders
from tensoropt.graph.operator import Graph, Operator, TensorName
from tensoropt.tdl.ops.random import RANDOM_TYPES

__all__ = ["Atom", "Atoms", "State", "atomic_components"]


@dataclass(frozen=True, slots=True)
class Atom:
    """One task that depends on the batch, and the constants that it needs, cloned for it.

    Attributes:
        operator: the task.
        constants: operators that depend on the batch in no way, in topological order: constants,
            reads of variables, what is computed of them. Another atom may have them, too.
        states: the variables, by the name of their `State`.
        fed: placeholders that it reads, by itself or by its constants.
    """

    operator: str
    constants: tuple[str, ...] = ()
    states: tuple[str, ...] = ()
    fed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class State:
    """A variable with what is updated with it.

    Attributes:
        variables: it and its optimizer's slots, in the graph's order.
        gradients: operators that stand for its gradient.
        updates: operators that follow the forward pass and are tied to it.
        atoms: numbers of the components that hold it; several share it (tied weights).
    """

    variables: tuple[str, ...]
    gradients: tuple[str, ...]
    updates: tuple[str, ...]
    atoms: tuple[int, ...]

    @property
    def shared(self) -> bool:
        """Whether several components hold it, which may be in several stages."""
        return len(self.atoms) > 1


@dataclass(frozen=True, slots=True, eq=False)
class Atoms:
    """The atomic components of a step, in topological order.

    Attributes:
        graph: the step.
        atoms: the components.
        edges: producer, reader and tensor, of tensors between components; without a tensor where
            one only waits for the other.
        states: by name, that of the first variable.
        rest: operators of no component.
    """

    graph: Graph
    atoms: tuple[Atom, ...]
    edges: tuple[tuple[int, int, TensorName | None], ...]
    states: Mapping[str, State] = field(default_factory=dict)
    rest: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.atoms)


def atomic_components(graph: Graph, batch_inputs: Collection[str]) -> Atoms:
    """Cut the forward pass of a step into components of one task each that depends on the batch.

    As section III-A does it: forward from what is fed to find the non-constant tasks, then each
    with the constant ones that it needs. What is fed is no task: each stage is fed what it reads.
    Random numbers count as non-constant, since a clone would draw others.

    Args:
        graph: one training step, shapes bound.
        batch_inputs: placeholders whose first dimension is the batch.

    Raises:
        GraphError: if no operator of the forward pass depends on the batch.
    """
    return _Cut(graph, frozenset(batch_inputs)).atoms()


class _Cut:
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
                "a step that becomes a pipeline computes something of its batch. Got a graph of "
                f"{len(graph)} operators of which none depends on {sorted(batch_inputs)}; check "
                "which placeholders feed the batch."
            )

    def atoms(self) -> Atoms:
        found, edges = [], []
        readers: dict[str, list[int]] = {}
        for name, number in self._number.items():
            operator = self._graph[name]
            atom = self._atom(operator)
            found.append(atom)
            for state in atom.states:
                readers.setdefault(state, []).append(number)
            for each in (name, *atom.constants):
                edges += self._arriving(self._graph[each], number)
        states, rest = self._states(readers)
        edges = list(dict.fromkeys(edges))
        return Atoms(self._graph, tuple(found), tuple(edges), states, rest)

    def _atom(self, operator: Operator) -> Atom:
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

    def _arriving(
        self, operator: Operator, number: int
    ) -> list[tuple[int, int, TensorName | None]]:
        """Edges into a component, from what its task or its constants read or wait for."""
        made: list[tuple[int, int, TensorName | None]] = [
            (self._number[tensor.operator], number, tensor)
            for tensor in operator.inputs
            if tensor.operator in self._number
        ]
        made += [
            (self._number[name], number, None)
            for name in operator.control_inputs
            if name in self._number
        ]
        return made

    def _states(self, readers: Mapping[str, list[int]]) -> tuple[dict[str, State], tuple[str, ...]]:
        """States by the leader of their variables, and what belongs to no component."""
        tied: dict[str, list[Operator]] = {}
        for operator in self._graph:
            leader = self._leader_of[operator.name]
            if self._graph[leader].is_variable:
                tied.setdefault(leader, []).append(operator)
        last, owners = self._last_needed(), self._owners()
        parts: dict[str, list[str]] = {}
        for name, owner in owners.items():
            parts.setdefault(owner, []).append(name)
        states: dict[str, State] = {}
        held = {*self._forward, *self._number}
        for leader, operators in tied.items():
            updates = [o.name for o in operators if self._is_update(o)]
            updates = sorted({*updates, *parts.get(leader, ())}, key=self._places.__getitem__)
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
        """Whether it follows the forward pass and computes something."""
        followed = operator.name not in self._forward and operator.gradient is None
        return followed and not operator.is_variable

    def _owners(self) -> dict[str, str]:
        """Of what follows the forward pass and is tied to no state, the only one that it is for."""
        owners: dict[str, set[str]] = {}
        found: dict[str, str] = {}
        for operator in reversed(list(self._graph)):
            name = operator.name
            leader = self._leader_of[name]
            if self._graph[leader].is_variable:
                own = {leader}
            else:
                own = owners.get(name, set())
                if len(own) == 1 and self._is_update(operator):
                    (found[name],) = own
            if self._is_update(operator):
                for needed in operator.predecessors:
                    # Two owners are as good as many, and are not worth carrying around.
                    if len(owners.setdefault(needed, set())) < 2:
                        owners[needed] |= own if len(own) < 2 else set(sorted(own)[:2])
        return found

    def _last_needed(self) -> dict[str, int]:
        """The last component that each operator depends on, other than by gradients."""
        last = dict(self._number)
        for operator in self._graph:
            if operator.name in last or operator.gradient is not None:
                continue
            needed = [last[name] for name in operator.predecessors if name in last]
            if needed:
                last[operator.name] = max(needed)
        return last


def _forward(graph: Graph) -> frozenset[str]:
    """What is cut into stages."""
    ys = [y.operator for o in graph if o.gradient is not None for y in o.gradient.ys]
    if not ys:
        return frozenset(graph.operators)
    found: set[str] = set()
    while ys:
        name = ys.pop()
        if name not in found and name in graph:
            found.add(name)
            ys += graph[name].predecessors
    return frozenset(found)
