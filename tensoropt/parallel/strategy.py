"""A strategy: a configuration for every operator of a graph, and the slots that follow."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from tensoropt.graph.coarsen import leaders
from tensoropt.graph.operator import GRADIENT, Graph, Operator, TensorName
from tensoropt.graph.per_graph import per_graph
from tensoropt.parallel.configuration import (
    Configuration,
    fitted,
    input_slot,
    output_slot,
)
from tensoropt.parallel.layout import Layout, Slot
from tensoropt.parallel.mesh import Mesh
from tensoropt.tdl import Derivation, derive, replicated, source

__all__ = [
    "Strategy",
    "derivation_of",
    "derivation_under",
    "derivations_of",
    "derivations_under",
    "follower_configuration",
    "redundant",
]


def derivation_of(operator: Operator) -> Derivation:
    """What the descriptions say of an operator's iteration space.

    Text cannot be moved between devices, as its elements have no fixed size: what makes or reads
    it is replicated.
    """
    outputs = operator.outputs
    if any(spec.dtype == "string" for spec in (*operator.input_specs, *outputs)):
        return replicated(operator.type, operator.input_specs, outputs)
    if operator.is_variable or operator.is_placeholder:
        return source(operator.type, outputs[0].shape)
    if operator.gradient is not None:
        if operator.gradient.part == "dense":
            return source(GRADIENT, outputs[0].shape)
        return replicated(GRADIENT, (), outputs)
    if operator.is_constant:
        return replicated(operator.type, operator.input_specs, outputs)
    if operator.mutates and not outputs:
        outputs = (operator.input_specs[operator.mutates[0]],)
    return derive(operator.type, operator.input_specs, outputs, operator.attributes)


@per_graph
def derivations_of(graph: Graph) -> Mapping[str, Derivation]:
    """`derivation_of` all operators of a graph, by name."""
    return {operator.name: derivation_of(operator) for operator in graph}


def derivation_under(operator: Operator, configuration: Configuration | None) -> Derivation:
    """`derivation_of` an operator, and whether partial sums are read under a configuration of it.

    Such a configuration has entries for all of `Derivation.linear`, split or not.
    """
    return _read_under(derivation_of(operator), configuration)


def derivations_under(graph: Graph, planned: Mapping[str, Configuration]) -> dict[str, Derivation]:
    """`derivation_under` a plan's configurations for all operators of a graph, by name."""
    own = derivations_of(graph).items()
    return {name: _read_under(derivation, planned.get(name)) for name, derivation in own}


def _read_under(derivation: Derivation, configuration: Configuration | None) -> Derivation:
    further = len(derivation.linear)
    if configuration and further and len(configuration.splits) == len(derivation.indices) + further:
        return derivation.on_shares()
    return derivation


def redundant(derivation: Derivation) -> Configuration:
    """The configuration in which every device computes the whole operator."""
    return Configuration(((),) * len(derivation.indices))


def follower_configuration(
    leader: Derivation, configuration: Configuration, follower: Derivation
) -> Configuration | None:
    """The configuration that a tied operator takes with its leader's, None where it cannot.

    A tied operator follows when its iteration space is the leader's: the same extents, each index
    as splittable as the leader's. Any operator follows a fully redundant leader.
    """
    if not any(configuration.splits):
        return Configuration(redundant(follower).splits, configuration.kept)
    if tuple(i.extent for i in leader.indices) != tuple(i.extent for i in follower.indices):
        return None
    for index, axes in zip(follower.indices, configuration.splits, strict=True):
        if axes and (index.reducer is not None or not index.splittable):
            return None
    return configuration


class Strategy:
    """A configuration for every operator of one graph.

    Args:
        graph: the graph.
        mesh: the devices.
        planned: configurations by operator name, from a plan (perhaps for other shapes: axes that
            do not divide an extent here are dropped).
        batch_placeholders: placeholders whose first dimension is the batch: they are loaded data
            parallel.

    An operator without a planned configuration follows what it is tied to; otherwise it runs
    replicated.
    """

    def __init__(
        self,
        graph: Graph,
        mesh: Mesh,
        planned: Mapping[str, Configuration],
        batch_placeholders: frozenset[str] = frozenset(),
    ) -> None:
        self.graph = graph
        self.mesh = mesh
        self.derivations = derivations_under(graph, planned)
        self.configurations: dict[str, Configuration] = {}
        self._read: dict[tuple[str, int], Slot] = {}
        self._produced: dict[TensorName, Slot] = {}
        tied = leaders(graph)
        for operator in graph:
            self.configurations[operator.name] = self._resolve(
                operator, planned, batch_placeholders, tied[operator.name]
            )

    def _resolve(
        self,
        operator: Operator,
        planned: Mapping[str, Configuration],
        batch_placeholders: frozenset[str],
        leader: str,
    ) -> Configuration:
        derivation = self.derivations[operator.name]
        if operator.is_placeholder:
            is_batch = operator.name in batch_placeholders
            loaded = loader_configuration(derivation, self.mesh, is_batch)
            kept = planned[operator.name].kept if operator.name in planned else loaded.kept
            return Configuration(loaded.splits, kept)
        if operator.name in planned:
            return fitted(planned[operator.name], derivation, self.mesh)
        if leader != operator.name and leader in self.configurations:
            followed = follower_configuration(
                self.derivations[leader], self.configurations[leader], derivation
            )
            if followed is not None:
                return followed
        return redundant(derivation)

    def input_slot(self, operator: Operator, number: int) -> Slot:
        """Layouts of an operator's input and of its gradient there."""
        name = operator.name
        known = self._read.get((name, number))
        if known is None:
            known = input_slot(self.derivations[name], self.configurations[name], number)
            self._read[name, number] = known
        return known

    def output_slot(self, tensor: TensorName) -> Slot:
        """Layouts of a tensor and of its gradient where it is made."""
        known = self._produced.get(tensor)
        if known is None:
            known = produced_slot(self.graph, self.derivations, self.configurations, tensor)
            self._produced[tensor] = known
        return known

    def reconfigure(self, name: str, configuration: Configuration) -> None:
        """Give an operator another configuration."""
        self.configurations[name] = configuration
        self._read.clear()
        self._produced.clear()


def produced_slot(
    graph: Graph,
    derivations: Mapping[str, Derivation],
    configurations: Mapping[str, Configuration],
    tensor: TensorName,
) -> Slot:
    """The slot of a tensor at its producer; a gradient's is that of x's gradient.

    The slices of a sparse gradient are whole on every device, each row laid out as x's gradient;
    so are the numbers of these rows, over the whole of x.
    """
    operator = graph[tensor.operator]
    tag = operator.gradient
    if tag is None:
        return output_slot(derivations[operator.name], configurations[operator.name], tensor.index)
    slot = output_slot(derivations[tag.x.operator], configurations[tag.x.operator], tag.x.index)
    if tag.part == "dense":
        return Slot(slot.gradient, slot.forward)
    rank = len(operator.outputs[0].shape)
    layout = Layout.replicated(rank)
    if tag.part == "values" and rank == len(slot.gradient.dims):
        layout = Layout(((), *slot.gradient.dims[1:]))
    return Slot(layout, layout)


@lru_cache(maxsize=1024)
def loader_configuration(derivation: Derivation, mesh: Mesh, is_batch: bool) -> Configuration:
    """Data parallelism for a fed tensor: its batch dimension over all axes that divide it."""
    if not is_batch or not derivation.indices:
        return redundant(derivation)
    wanted = (tuple(range(len(mesh.axes))), *((),) * (len(derivation.indices) - 1))
    return fitted(Configuration(wanted), derivation, mesh)
