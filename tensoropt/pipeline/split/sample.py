"""A step with few of the layers that repeat, at any number of examples, for a search."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from tensoropt.graph.backward_reads import BackwardReads
from tensoropt.graph.coarsen import leaders
from tensoropt.graph.operator import Graph, Operator, TensorName
from tensoropt.graph.ordering import in_order
from tensoropt.pipeline.atom_costs import AtomCosts
from tensoropt.pipeline.split.repeats import Repeats, repeats
from tensoropt.tensor_spec import TensorSpec

__all__ = ["Sample"]


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """Of layers that repeat three, the second of which stands for all between.

    Attributes:
        costs: of the step's components.
        repeats: the layers.
        graph: of the sample, with the step's examples; names are those of the step.
        reads: what its backward pass reads.
        stand_in: of operators that are left out, which stand for them.
        times: how many stand for operators of the second layer.
        leader_of: per operator the one that it shares its configuration with. Layers are alike.
        layer: of operators of layers, which.
        tied: operators that share their configuration with others in the step, too.
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
    def of(cls, costs: AtomCosts, reads: BackwardReads) -> Sample:
        """Of the components of a step, and of what its backward pass reads."""
        found = repeats(costs)
        stand_in, like, layer = _layers(costs, found)
        graph = _without(costs.atoms.graph, stand_in)
        if graph is None:  # what is kept of one layer needs another layer's operators
            found, stand_in, like, layer = Repeats(0, 1, 0), {}, {}, {}
            graph = costs.atoms.graph
        leader_of = leaders(graph)
        members = Counter(leader_of.values())
        tied = frozenset(name for name, own in leader_of.items() if members[own] > 1)
        leader_of = {name: like.get(own, own) for name, own in leader_of.items()}
        inputs, outputs = (
            {name: numbers for name, numbers in each.items() if name in graph}
            for each in (reads.inputs, reads.outputs)
        )
        kept_reads = BackwardReads(inputs, outputs)
        return cls(costs, found, graph, kept_reads, stand_in, leader_of, layer, tied)

    def stands_for(self, name: str) -> str:
        """The operator of the sample for one of the step."""
        return self.stand_in.get(name, name)

    def times(self, name: str) -> int:
        """For how many operators of the step one of the sample stands."""
        return self.repeats.count - 2 if self.layer.get(name) == 1 else 1

    def at(self, examples: int) -> Graph:
        """The graph at a number of examples."""
        growth = self.costs.growth
        if examples == growth.examples:
            return self.graph
        step, specs = self.costs.atoms.graph, dict[TensorName, TensorSpec]()

        def spec(tensor: TensorName, known: TensorSpec) -> TensorSpec:
            if not growth.tensor_grows(tensor):
                return known
            if tensor not in specs:
                shape = growth.tensor_shape(tensor, examples)
                specs[tensor] = TensorSpec(shape, known.dtype)
            return specs[tensor]

        def resized(operator: Operator) -> Operator:
            read = step[operator.name].inputs
            arriving = map(spec, read, operator.input_specs)
            made = (
                spec(TensorName(operator.name, number), each)
                for number, each in enumerate(operator.outputs)
            )
            return replace(operator, input_specs=tuple(arriving), outputs=tuple(made))

        return Graph({operator.name: resized(operator) for operator in self.graph})


def _layers(
    costs: AtomCosts, found: Repeats
) -> tuple[dict[str, str], dict[str, str], dict[str, int]]:
    """Operators of layers: of those left out the one that stands for them, of all but the first
    layer's their like in that, and of all the number of the layer."""
    stand_in: dict[str, str] = {}
    like: dict[str, str] = {}
    layer: dict[str, int] = {}
    for place in range(len(costs.atoms)):
        number = found.layer(place)
        if number is None:
            continue
        own = list(_names(costs, place))
        first = dict(zip(own, _names(costs, found.like(place)), strict=True))
        like.update({name: other for name, other in first.items() if name != other})
        layer.update({name: number for name, other in first.items() if name != other})
        if number == 0:
            layer.update(dict.fromkeys(own, 0))
        kept = zip(own, _names(costs, found.stand_in(place)), strict=True)
        stand_in.update({name: other for name, other in kept if name != other})
    return stand_in, like, layer


def _without(graph: Graph, stand_in: Mapping[str, str]) -> Graph | None:
    """A graph without the operators that others stand for; None where its order has a cycle.

    An operator that is kept may read one that is left out, as an optimizer does that adds up slices
    of a gradient. Its stand-in may come later in the step, so the rest is put in order again.
    """
    kept = {
        operator.name: _renamed(operator, stand_in)
        for operator in graph
        if operator.name not in stand_in
    }
    return in_order(kept)


def _names(costs: AtomCosts, place: int) -> Iterator[str]:
    """A component's own operators, in an order that is the same for all that are alike.

    Those that others have, too, are the same in each, or have their like.
    """
    atoms = costs.atoms
    atom = atoms.atoms[place]
    yield atom.operator
    yield from atom.constants
    for name in atom.states:
        if name in atoms.states:
            state = atoms.states[name]
            for part in (state.variables, state.gradients, state.updates):
                yield from part


def _renamed(operator: Operator, stand_in: Mapping[str, str]) -> Operator:
    """An operator that reads what is in the sample."""
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
