"""A strategy: a configuration for every operator of a graph, which determines all slots."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from tensoropt.graph.operator import GRADIENT, Graph, Operator, TensorName
from tensoropt.graph.per_graph import per_graph
from tensoropt.graph.tied_operators import leaders
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


_STORED = 1 << 14
"""The most results that each of the next functions stores. The strategies of a frontier have most
configurations in common, so an estimate of a peak takes a quarter less time."""
_fitted = lru_cache(maxsize=_STORED)(fitted)
_input_slot = lru_cache(maxsize=_STORED)(input_slot)
_output_slot = lru_cache(maxsize=_STORED)(output_slot)


def derivation_of(operator: Operator) -> Derivation:
    """Return the derivation of an operator from the descriptions.

    Elements of text have no fixed size, so text cannot be sent between devices. Operators that read
    or make text are replicated.
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
    """Return `derivation_of` every operator of a graph, by name."""
    return {operator.name: derivation_of(operator) for operator in graph}


def derivation_under(operator: Operator, configuration: Configuration | None) -> Derivation:
    """Return `derivation_of` an operator, extended if the configuration lets it read partial sums.

    A configuration that lets it has an entry for each index, and for each `Derivation.linear`.
    """
    return _if_partial_read(derivation_of(operator), configuration)


def derivations_under(graph: Graph, planned: Mapping[str, Configuration]) -> dict[str, Derivation]:
    """Return `derivation_under` the plan's configuration of every operator of a graph, by name."""
    derivations = derivations_of(graph).items()
    return {name: _if_partial_read(each, planned.get(name)) for name, each in derivations}


def _if_partial_read(derivation: Derivation, configuration: Configuration | None) -> Derivation:
    sets = len(derivation.linear)
    if configuration and sets and len(configuration.splits) == len(derivation.indices) + sets:
        return derivation.on_shares()
    return derivation


def redundant(derivation: Derivation) -> Configuration:
    """Return the configuration in which every device computes the whole operator."""
    return Configuration(((),) * len(derivation.indices))


def follower_configuration(
    leader: Derivation, configuration: Configuration, follower: Derivation, mesh: Mesh
) -> Configuration | None:
    """Return the configuration of a tied operator under its leader's, None if it cannot follow.

    Every operator can follow a fully redundant leader. Otherwise its indices must have the extents
    of the leader's. Each index that the leader splits must be splittable into the same pieces,
    uneven ones included, and must not be reduced.
    """
    if not any(configuration.splits):
        return Configuration(redundant(follower).splits, configuration.kept)
    if tuple(i.extent for i in leader.indices) != tuple(i.extent for i in follower.indices):
        return None
    for index, axes in zip(follower.indices, configuration.splits, strict=True):
        if axes and (index.reducer is not None or not index.splittable):
            return None
    return configuration if fitted(configuration, follower, mesh) == configuration else None


class Strategy:
    """A configuration for every operator of one graph.

    An operator without a planned configuration follows its leader
    (`tensoropt.graph.tied_operators.leaders`) if it can. Otherwise it is replicated.

    Args:
        graph: the graph.
        mesh: the devices.
        planned: configurations by operator name, from a plan. The plan may be for other shapes:
            axes that cannot split an index here are dropped.
        batch_placeholders: placeholders whose first dimension is the batch. It is split over as
            many axes as it has examples for, into equal pieces or not.
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
            return _fitted(planned[operator.name], derivation, self.mesh)
        if leader != operator.name and leader in self.configurations:
            followed = follower_configuration(
                self.derivations[leader], self.configurations[leader], derivation, self.mesh
            )
            if followed is not None:
                return followed
        return redundant(derivation)

    def input_slot(self, operator: Operator, number: int) -> Slot:
        """Return the layouts of an operator's input and of its gradient there."""
        name = operator.name
        slot = self._read.get((name, number))
        if slot is None:
            slot = _input_slot(self.derivations[name], self.configurations[name], number)
            self._read[name, number] = slot
        return slot

    def output_slot(self, tensor: TensorName) -> Slot:
        """Return the layouts of a tensor and of its gradient at the producer."""
        slot = self._produced.get(tensor)
        if slot is None:
            slot = produced_slot(self.graph, self.derivations, self.configurations, tensor)
            self._produced[tensor] = slot
        return slot

    def is_uneven(self, name: str) -> bool:
        """Whether an operator's configuration splits an index into pieces of different extents."""
        indices = self.derivations[name].indices
        splits = self.configurations[name].splits
        return any(
            axes and not self.mesh.divides(index.extent, axes)
            for index, axes in zip(indices, splits, strict=True)
        )

    @property
    def has_uneven_pieces(self) -> bool:
        """Whether any operator has pieces of different extents."""
        return any(map(self.is_uneven, self.configurations))

    def reconfigure(self, name: str, configuration: Configuration) -> None:
        """Replace the configuration of an operator."""
        self.configurations[name] = configuration
        self._read.clear()
        self._produced.clear()


def produced_slot(
    graph: Graph,
    derivations: Mapping[str, Derivation],
    configurations: Mapping[str, Configuration],
    tensor: TensorName,
) -> Slot:
    """Return the slot of a tensor at its producer.

    The slot of a dense gradient by x is the slot of x with its two layouts exchanged. A sparse
    gradient by x consists of slices and their row numbers. Every device holds all row numbers, and
    its part of every slice: the first dimension is not split, the others are as in x's gradient.
    """
    operator = graph[tensor.operator]
    tag = operator.gradient
    if tag is None:
        return _output_slot(derivations[operator.name], configurations[operator.name], tensor.index)
    slot = _output_slot(derivations[tag.x.operator], configurations[tag.x.operator], tag.x.index)
    if tag.part == "dense":
        return Slot(slot.gradient, slot.forward)
    rank = len(operator.outputs[0].shape)
    layout = Layout.replicated(rank)
    if tag.part == "values" and rank == len(slot.gradient.dims):
        layout = Layout(((), *slot.gradient.dims[1:]))
    return Slot(layout, layout)


@lru_cache(maxsize=1024)
def loader_configuration(derivation: Derivation, mesh: Mesh, is_batch: bool) -> Configuration:
    """Return the configuration of a placeholder, which splits its first dimension if it is a batch.

    The batch is split over as many axes as it has examples for.
    """
    if not is_batch or not derivation.indices:
        return redundant(derivation)
    wanted = (tuple(range(len(mesh.axes))), *((),) * (len(derivation.indices) - 1))
    return fitted(Configuration(wanted), derivation, mesh)
