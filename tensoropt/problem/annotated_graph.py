"""A graph together with the facts from which the costs of its operators and tensors follow."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from tensoropt.cost.model import CostModel
from tensoropt.graph.backward_reads import BackwardReads
from tensoropt.graph.differentiation import differentiated_inputs, sparse_tensors
from tensoropt.graph.operator import Graph, TensorName
from tensoropt.graph.tied_operators import leaders
from tensoropt.parallel.choices.choices import Choices, same_steps, strategy_choices
from tensoropt.parallel.choices.kinds import Kinds, kinds_of
from tensoropt.parallel.choices.pins import MeshPins
from tensoropt.parallel.choices.weights_as_read import readings
from tensoropt.parallel.configuration import Configuration
from tensoropt.parallel.mesh import Mesh
from tensoropt.problem.edges.tensor_reuse import PLAIN, SavedTensors, Space

__all__ = ["AnnotatedGraph"]


@dataclass(frozen=True, slots=True, eq=False)
class AnnotatedGraph:
    """A graph, its devices and prices, and the facts that are derived from them.

    Attributes:
        graph: the graph of one training step, with known shapes.
        mesh: the devices.
        cost: the cost model.
        kinds: the kinds of the operators, and their derivations.
        differentiated: for each operator the inputs whose gradient is computed.
        sparse: the tensors whose gradient is sparse.
        saved: the tensors that are saved for the backward pass.
        leader_of: for each operator the one whose configuration it shares.
        choices: the options of each group of operators that share a configuration.
        repeats: number of runs of the operators that run more than once in a step.
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
        fixed: Mapping[str, Configuration] | None = None,
        pins: MeshPins | None = None,
    ) -> AnnotatedGraph:
        """Derive the facts from a graph.

        Args:
            graph: the graph of one training step, with known shapes.
            mesh: the devices.
            cost: the cost model.
            batch_placeholders: placeholders whose first dimension is the batch.
            reads: the tensors that the backward pass reads; none by default.
            space: the choices that are searched besides splits.
            repeats: number of runs of the operators that run once for each of several microbatches.
            leader_of: for each operator the one whose configuration it shares; by default
                `tensoropt.graph.tied_operators.leaders`.
            choosing: names of the operators whose outputs may be kept in part or recomputed. The
                default is those in ``repeats``, or all operators if there are none: a tensor that
                is computed once is read by all microbatches, so it stays.
            fixed: operators whose splits are decided, by name; none by default.
            pins: dimensions that are divided by hand, on this mesh; none by default.

        Raises:
            InfeasibleError: the decided splits exclude one another.
        """
        kinds = kinds_of(graph, partial_operands=space.partial_operands)
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
                saved.kept_choices,
                leader_of,
                as_read,
                same,
                fixed or {},
                pins,
            ),
            repeats or {},
        )
