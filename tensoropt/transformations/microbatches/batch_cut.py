"""The division of a step into microbatches, and the reasons why it cannot be divided."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tensoropt.errors import GraphError
from tensoropt.graph.batch_norm import takes_statistics
from tensoropt.graph.operator import GradientTag, Graph, TensorName
from tensoropt.tdl import Derivation
from tensoropt.transformations.microbatches.step_graph import named

__all__ = ["BatchCut", "CallCut", "Refusal"]


@dataclass(frozen=True, slots=True)
class Refusal:
    """The reason why a step cannot be computed microbatch by microbatch.

    Attributes:
        operator: name of the operator that prevents it.
        type: the operator's type.
        reason: a phrase that follows the operator's name, such as "is a gradient".
    """

    operator: str
    type: str
    reason: str

    def __str__(self) -> str:
        return f"{self.operator!r} ({self.type}) {self.reason}"


@dataclass(frozen=True, slots=True)
class CallCut:
    """One call of ``tf.gradients``, whose ys are affine in results of microbatches.

    Attributes:
        tag: the tag of one of its gradients.
        ends: tensors of the microbatches that the ys depend on, and through which gradients flow.
        path: operators between ``ends`` and the ys, in topological order.
        differentiated: for each operator of the step the numbers of inputs that gradients flow
            through, see `differentiated_inputs`.
    """

    tag: GradientTag
    ends: tuple[TensorName, ...]
    path: tuple[str, ...]
    differentiated: Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True, eq=False)
class BatchCut:
    """The division of a step into microbatches.

    Attributes:
        graph: the whole step.
        microbatches: number of microbatches.
        made: number of microbatches that get operators. A dry run makes fewer than all: then what
            is joined from all microbatches has the results of the first in place of the others'.
        derivations: derivations of all operators.
        indices: operators that are computed microbatch by microbatch, in topological order, with
            the index of their iteration space that is cut; None for placeholders, and for operators
            without such an index if one microbatch has all examples.
        dims: the dimension of examples of each tensor that these operators compute and that has
            examples.
        slices: by operator and number of an input, the dimension along which the input is cut.
            These inputs are computed outside the microbatches.
        before: operators that are computed once, before the first microbatch; some read the batch,
            such as coefficients of losses.
        calls: calls of ``tf.gradients``, by number.
        refusals: reasons why the step cannot be computed by microbatch; empty if it can.
    """

    graph: Graph
    microbatches: int
    made: int
    derivations: Mapping[str, Derivation]
    indices: Mapping[str, int | None]
    dims: Mapping[TensorName, int]
    slices: Mapping[tuple[str, int], int]
    before: frozenset[str]
    calls: Mapping[int, CallCut]
    refusals: tuple[Refusal, ...]

    def copies(self, name: str) -> list[str]:
        """The names of an operator's copies, one for each microbatch."""
        not_made = self.microbatches - self.made
        return [named(name, max(0, n - not_made)) for n in range(self.microbatches)]

    def sums(self, name: str) -> bool:
        """Whether an operator sums over examples, so that its result is a share of the step's.

        Local statistics of a batch normalisation count as sums.
        """
        index = self.indices[name]
        if index is None:
            return False
        cut_index = self.derivations[name].indices[index]
        return cut_index.reducer is not None or bool(cut_index.partial_outputs)

    def check(self) -> None:
        """Check that the step can be computed microbatch by microbatch.

        Raises:
            GraphError: naming the operators that prevent it.
        """
        if not self.refusals:
            return
        named = "; ".join(map(str, self.refusals[:4]))
        more = f"; and {len(self.refusals) - 4} more" if len(self.refusals) > 4 else ""
        remedy = "Leave microbatches and pipeline out, or replace operators that mix examples"
        if any(takes_statistics(self.graph[refusal.operator]) for refusal in self.refusals):
            remedy += "; batch_norm='local' normalises each microbatch by its own statistics"
        raise GraphError(
            "a step can be divided into microbatches if no operator of its losses mixes "
            f"examples, other than by a final sum or mean. Got {named}{more}. {remedy}."
        )
