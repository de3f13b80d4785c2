"""A graph with what the costs of its operators and tensors depend on."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from tensoropt.cost.model import CostModel
from tensoropt.graph.backward_reads import BackwardReads
from tensoropt.graph.coarsen import leaders
from tensoropt.graph.differentiation import differentiated_inputs, sparse_tensors
from tensoropt.graph.operator import Graph, TensorName
from tensoropt.parallel.choices.choices import Choices, same_steps, strategy_choices
from tensoropt.parallel.choices.kinds import Kinds
from tensoropt.parallel.choices.weights_as_read import readings
from tensoropt.parallel.mesh import Mesh
from tensoropt.problem.edges.tensor_reuse import PLAIN, SavedTensors, Space

__all__ = ["AnnotatedGraph"]


@dataclass(frozen=True, slots=True, eq=False)
class AnnotatedGraph:
    """A graph, devices and prices, and what follows from them before any cost is known.

    Attributes:
        graph: one training step, shapes bound.
        mesh: the devices.
        cost: the prices.
        kinds: of operators that are alike, and their iteration spaces.
        differentiated: per operator the inputs whose gradient is computed.
        sparse: the tensors whose gradient is sparse.
        saved: what is saved of each tensor for the backward pass.
        leader_of: per operator the one that it shares its configuration with.
        choices: per group of operators that share a configuration its options.
        repeats: how often operators run in a step that run more than once.
    """

    graph: Graph
    mesh: Mesh
    cost: CostModel
    kinds: Kinds
    differentiated: Mapping[str, tuple[int, ...]]
    sparse: frozenset[TensorName]
    saved: SavedTensors
    leader_of: Mapping[str, str]
    choices: tuple[Choices, ...]
    repeats: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        graph: Graph,
        mesh: Mesh,
        cost: CostModel,
        batch_placeholders: frozenset[str] = frozenset(),
        reads: BackwardReads | None = None,
        space: Space = PLAIN,
        repeats: Mapping[str, int] | None = None,
        leader_of: Mapping[str, str] | None = None,
        choosing: Collection[str] | None = None,
    ) -> AnnotatedGraph:
        """What follows from a graph.

        Args:
            graph: one training step, shapes bound.
            mesh: the devices.
            cost: the prices.
            batch_placeholders: placeholders loaded data parallel.
            reads: what the backward pass reads; nothing if left out.
            space: what is searched beside splits: storage of weights, reuse of saved tensors; this
                for what several microbatches make, as all of them read what is computed once.
            repeats: how often operators run that run for each of several microbatches.
            leader_of: per operator the one that it shares its configuration with;
                `tensoropt.graph.coarsen.leaders` if left out.
            choosing: names of the operators that may keep less; those of ``repeats`` if left out.
        """
        kinds = Kinds(graph, partial_operands=space.partial_operands)
        derivations = kinds.derivations
        leader_of = leaders(graph) if leader_of is None else leader_of
        same = same_steps(graph, kinds.derivation_numbers, leader_of)
        only = choosing if choosing is not None else repeats or None
        saved = SavedTensors(
            graph, derivations, reads or BackwardReads(), space, mesh.size, same, only
        )
        as_read = {} if space.sharded_storage else readings(graph, leader_of, derivations)
        return cls(
            graph,
            mesh,
            cost,
            kinds,
            differentiated_inputs(graph),
            frozenset().union(*sparse_tensors(graph).values()),
            saved,
            leader_of,
            strategy_choices(
                graph,
                mesh,
                batch_placeholders,
                derivations,
                saved.offered,
                leader_of,
                as_read,
                same,
            ),
            repeats or {},
        )
