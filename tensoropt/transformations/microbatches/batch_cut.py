"""How a step falls into microbatches, or what stands in the way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tensoropt.errors import GraphError
from tensoropt.graph.batch_norm import takes_statistics
from tensoropt.graph.operator import GradientTag, Graph, TensorName
from tensoropt.tdl import Derivation

__all__ = ["BatchCut", "CallCut", "Refusal"]


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a step cannot be computed microbatch by microbatch.

    Attributes:
        operator: that stands in the way.
        type: its type.
        reason: what it does.
    """

    operator: str
    type: str
    reason: str

    def __str__(self) -> str:
        return f"{self.operator!r} ({self.type}) {self.reason}"


@dataclass(frozen=True, slots=True)
class CallCut:
    """One call of ``tf.gradients``, whose ys are affine in what microbatches make.

    Attributes:
        tag: of one of its gradients.
        ends: tensors of the microbatches that the ys depend on, and through which gradients flow.
        path: operators between these and the ys, in topological order.
        flows: per operator of the path the numbers of its inputs that gradients flow through.
        differentiated: for every operator of the step the same, see `differentiated_inputs`.
    """

    tag: GradientTag
    ends: tuple[TensorName, ...]
    path: tuple[str, ...]
    flows: Mapping[str, tuple[int, ...]]
    differentiated: Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True, eq=False)
class BatchCut:
    """How a step falls into microbatches.

    Attributes:
        graph: the step, whole.
        microbatches: how many.
        derivations: of all operators.
        indices: operators that are computed microbatch by microbatch, in topological order, with
            the index of their iteration space that is cut; None for placeholders, and where one
            microbatch has all examples and an operator has no such index.
        dims: of the tensors that they make, those that have examples, with the dimension.
        slices: inputs of theirs, by operator and number, that no microbatch makes and that are cut
            along a dimension.
        before: operators that are computed once, before the first microbatch; some of the batch,
            as coefficients of losses are.
        calls: of ``tf.gradients``, by number.
        refusals: what stands in the way; empty where the step can be computed so.
    """

    graph: Graph
    microbatches: int
    derivations: Mapping[str, Derivation]
    indices: Mapping[str, int | None]
    dims: Mapping[TensorName, int]
    slices: Mapping[tuple[str, int], int]
    before: frozenset[str]
    calls: Mapping[int, CallCut]
    refusals: tuple[Refusal, ...]

    def sums(self, name: str) -> bool:
        """Whether an operator sums over examples: what it makes is a share of the step's. So are
        local statistics of a batch normalisation."""
        index = self.indices[name]
        if index is None:
            return False
        about = self.derivations[name].indices[index]
        return about.reducer is not None or bool(about.partial_outputs)

    def check(self) -> None:
        """Check that the step can be computed so.

        Raises:
            GraphError: naming what stands in the way.
        """
        if not self.refusals:
            return
        named = "; ".join(map(str, self.refusals[:4]))
        more = f"; and {len(self.refusals) - 4} more" if len(self.refusals) > 4 else ""
        remedy = "Leave microbatches and pipeline out, or replace what mixes examples"
        if any(takes_statistics(self.graph[each.operator]) for each in self.refusals):
            remedy += "; batch_norm='local' normalises each microbatch by its own statistics"
        raise GraphError(
            "a step of several microbatches is the step of the whole batch, as no operator of its "
            f"losses mixes examples other than by a final sum or mean. Got {named}{more}. {remedy}."
        )
