"""A sample of a step for a search: the step with three of its repeated layers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from tensoropt.graph.backward_reads import BackwardReads
from tensoropt.graph.operator import Graph, Operator, TensorName
from tensoropt.graph.ordering import in_order
from tensoropt.graph.tied_operators import leaders
from tensoropt.pipeline.atom_costs import AtomCosts
from tensoropt.pipeline.split.repeats import Repeats, repeats
from tensoropt.tensor_spec import TensorSpec

__all__ = ["Sample"]


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """A step without most of its repeated layers: the first, the second and the last are kept.

    The second layer stands for all layers that are left out.

    Attributes:
        costs: the costs of the step's components.
        repeats: the repeated layers.
        graph: the graph of the sample, at the step's number of examples. Operators have the names
            that they have in the step.
        reads: the tensors that the backward pass of the sample reads.
        stand_in: for each operator that is left out, the operator that stands for it.
        leader_of: for each operator the one whose configuration it shares. An operator of a later
            layer shares that of the corresponding operator of the first layer.
        layer: for each operator of a layer, the number of the layer.
        tied: the operators that share a configuration in the step itself.
    """

    costs: AtomCosts
    repeats: Repeats
    graph: Graph
    reads: BackwardReads
    stand_in: Mapping[str, str]
    leader_of: Mapping[str, str]
    layer: Mapping[str, int]
    tied: frozenset[str]

    @classmethod
    def of(
        cls, costs: AtomCosts, reads: BackwardReads, pinned: Mapping[str, object] | None = None
    ) -> Sample:
        """Return the sample of a step.

        Args:
            costs: the costs of the step's components.
            reads: the tensors that the step's backward pass reads.
            pinned: what is decided of operators, by name. Layers are repeated only if the same is
                decided of corresponding operators.
        """
        repeated = repeats(costs)
        stand_in, first_like, layer = _layers(costs, repeated)
        decided = (pinned or {}).get
        alike = all(
            decided(name) == decided(like)
            for name, like in (*stand_in.items(), *first_like.items())
        )
        graph = _without(costs.atoms.graph, stand_in) if alike else None
        if graph is None:  # a kept operator needs one that is left out
            repeated, stand_in, first_like, layer = Repeats(0, 1, 0), {}, {}, {}
            graph = costs.atoms.graph
        leader_of = leaders(graph)
        members = Counter(leader_of.values())
        tied = frozenset(name for name, leader in leader_of.items() if members[leader] > 1)
        leader_of = {name: first_like.get(leader, leader) for name, leader in leader_of.items()}
        inputs, outputs = (
            {name: numbers for name, numbers in numbers_of.items() if name in graph}
            for numbers_of in (reads.inputs, reads.outputs)
        )
        kept_reads = BackwardReads(inputs, outputs)
        return cls(costs, repeated, graph, kept_reads, stand_in, leader_of, layer, tied)

    def stands_for(self, name: str) -> str:
        """Return the operator of the sample that stands for one of the step."""
        return self.stand_in.get(name, name)

    def times(self, name: str) -> int:
        """Return the number of the step's operators for which one of the sample stands."""
        return self.repeats.count - 2 if self.layer.get(name) == 1 else 1

    def at(self, examples: int) -> Graph:
        """Return the graph of the sample at a number of examples."""
        growth = self.costs.growth
        if examples == growth.examples:
            return self.graph
        step, specs = self.costs.atoms.graph, dict[TensorName, TensorSpec]()

        def resized_spec(tensor: TensorName, spec: TensorSpec) -> TensorSpec:
            if not growth.tensor_grows(tensor):
                return spec
            if tensor not in specs:
                shape = growth.tensor_shape(tensor, examples)
                specs[tensor] = TensorSpec(shape, spec.dtype)
            return specs[tensor]

        def resized(operator: Operator) -> Operator:
            inputs = step[operator.name].inputs
            input_specs = map(resized_spec, inputs, operator.input_specs)
            outputs = (
                resized_spec(TensorName(operator.name, number), spec)
                for number, spec in enumerate(operator.outputs)
            )
            return replace(operator, input_specs=tuple(input_specs), outputs=tuple(outputs))

        return Graph({operator.name: resized(operator) for operator in self.graph})


def _layers(
    costs: AtomCosts, repeated: Repeats
) -> tuple[dict[str, str], dict[str, str], dict[str, int]]:
    """Return three mappings of the operators of repeated layers.

    They are: the stand-in of each operator that is left out; the corresponding operator of the
    first layer, for each operator of a later one; and the number of each operator's layer.
    """
    stand_in: dict[str, str] = {}
    first_like: dict[str, str] = {}
    layer: dict[str, int] = {}
    for place in range(len(costs.atoms)):
        number = repeated.layer(place)
        if number is None:
            continue
        names = list(_names(costs, place))
        first = dict(zip(names, _names(costs, repeated.like(place)), strict=True))
        first_like.update({name: like for name, like in first.items() if name != like})
        layer.update({name: number for name, like in first.items() if name != like})
        if number == 0:
            layer.update(dict.fromkeys(names, 0))
        kept = zip(names, _names(costs, repeated.stand_in(place)), strict=True)
        stand_in.update({name: like for name, like in kept if name != like})
    return stand_in, first_like, layer


def _without(graph: Graph, stand_in: Mapping[str, str]) -> Graph | None:
    """Return a graph without the operators that have a stand-in; None if it would have a cycle.

    A kept operator that reads one of them reads its stand-in instead. For example, an optimizer
    adds up the slices of a gradient. The stand-in may come later in the step, so the operators are
    ordered anew.
    """
    kept = {
        operator.name: _renamed(operator, stand_in)
        for operator in graph
        if operator.name not in stand_in
    }
    return in_order(kept)


def _names(costs: AtomCosts, place: int) -> Iterator[str]:
    """Yield the operators of a component and of its states.

    For corresponding components of two layers, the order is the same. An operator of several
    components is yielded for each of them.
    """
    atoms = costs.atoms
    atom = atoms.atoms[place]
    yield atom.operator
    yield from atom.constants
    for name in atom.states:
        if name in atoms.states:
            state = atoms.states[name]
            for names in (state.variables, state.gradients, state.updates):
                yield from names


def _renamed(operator: Operator, stand_in: Mapping[str, str]) -> Operator:
    """Return an operator that reads stand-ins in place of operators that are left out."""
    if not any(tensor.operator in stand_in for tensor in operator.inputs) and not any(
        name in stand_in for name in operator.control_inputs
    ):
        return operator
    return replace(
        operator,
        inputs=tuple(
            TensorName(stand_in.get(tensor.operator, tensor.operator), tensor.index)
            for tensor in operator.inputs
        ),
        control_inputs=tuple(stand_in.get(name, name) for name in operator.control_inputs),
    )
