"""Which tensors of the forward pass are kept for the backward pass, and which are made again.

Each configuration says which copies of an operator's outputs are kept
(`tensoropt.parallel.configuration.KEPT`): the three choices of tensor reuse (TensorOpt, section
4.2), and recomputation. The search, the execution and the estimate of peak memory all use this
module.
"""

from __future__ import annotations

from tensoropt.graph.backward_reads import VIEWS
from tensoropt.graph.operator import Graph, Operator, TensorName
from tensoropt.graph.per_graph import per_graph
from tensoropt.parallel.sparse import looks_up_rows
from tensoropt.parallel.strategy import Strategy
from tensoropt.tdl.ops.random import RANDOM_TYPES
from tensoropt.tdl.registry import find

__all__ = ["Keeping", "differentiates_gradients", "has_plain_inputs", "recomputable"]


def recomputable(operator: Operator) -> bool:
    """Whether an operator gives the same result again: it draws nothing and holds no state."""
    if operator.is_variable or operator.is_placeholder or operator.is_constant:
        return False
    if operator.gradient is not None or operator.mutates or operator.control_inputs:
        return False
    if operator.type in VIEWS or operator.type in RANDOM_TYPES or looks_up_rows(operator, 0):
        return False
    if not has_plain_inputs(operator) or any(_is_no_tensor(s.dtype) for s in operator.outputs):
        return False
    return bool(operator.outputs) and find(operator.type) is not None


def has_plain_inputs(operator: Operator) -> bool:
    """Whether an operator reads tensors only, no references to variables, and changes none."""
    return not operator.mutates and not any(_is_no_tensor(s.dtype) for s in operator.input_specs)


def _is_no_tensor(dtype: str) -> bool:
    return dtype in ("resource", "variant", "string") or dtype.endswith("_ref")


@per_graph
def differentiates_gradients(graph: Graph) -> bool:
    """Whether the step differentiates a value that depends on a gradient.

    If so, everything is kept, since a tensor that is made again cannot be differentiated. Control
    inputs count as dependencies too, except those of copied operators: they only order the
    microbatches.
    """
    after_gradient: set[str] = set()
    for operator in graph:
        dependencies = {tensor.operator for tensor in operator.inputs}
        if not operator.copy_of:
            dependencies.update(operator.control_inputs)
        tag = operator.gradient
        if tag is not None and any(tensor.operator in after_gradient for tensor in tag.ys):
            return True
        if tag is not None or dependencies & after_gradient:
            after_gradient.add(operator.name)
    return False


class Keeping:
    """The tensors that a strategy keeps for the backward pass.

    Attributes:
        active: whether the backward pass makes any tensor again.
    """

    def __init__(self, strategy: Strategy) -> None:
        self._strategy = strategy
        self._graph = strategy.graph
        some = any(
            configuration.kept != "both" for configuration in strategy.configurations.values()
        )
        self.active = some and not differentiates_gradients(self._graph)
        self._is_recomputed: dict[str, bool] = {}

    def kept(self, name: str) -> str:
        """Return which copies of an operator's outputs are kept, one of `KEPT`."""
        if not self.active:
            return "both"
        kept = self._strategy.configurations[name].kept
        if kept == "recomputed" and not recomputable(self._graph[name]):
            return "both"
        return kept

    def is_recomputed(self, name: str) -> bool:
        """Whether the backward pass makes the outputs of an operator again where they are made.

        The outputs of a view are made again whenever the tensor behind the view is.
        """
        if name not in self._is_recomputed:
            operator = self._graph[name]
            again = self.kept(name) == "recomputed"
            if self.active and operator.type in VIEWS and not operator.is_constant:
                again = self.read_again(operator, 0)
            self._is_recomputed[name] = again
        return self._is_recomputed[name]

    def moved(self, operator: Operator, number: int) -> bool:
        """Whether an input is resharded between its producer and the operator."""
        if number in operator.mutates or operator.input_specs[number].dtype == "resource":
            return False
        made = self._strategy.output_slot(operator.inputs[number])
        return made.forward != self._strategy.input_slot(operator, number).forward

    def read_again(self, operator: Operator, number: int) -> bool:
        """Whether the backward pass has to make an input again in the layout the operator reads."""
        if not self.active:
            return False
        source = operator.inputs[number].operator
        if self._graph[source].is_constant:
            return False
        if self.moved(operator, number):
            return self.kept(source) in ("before", "recomputed")
        return self.is_recomputed(source)

    def returned_from(self, tensor: TensorName) -> tuple[Operator, int] | None:
        """Return the reader whose resharded copy a tensor is restored from in the backward pass.

        Returns:
            The operator and the number of its input, or None if the tensor is not restored from a
            copy.
        """
        if self.kept(tensor.operator) != "after":
            return None
        for operator in self._graph:
            if operator.gradient is not None:  # names the tensor, but reads no copy of it
                continue
            for number, read in enumerate(operator.inputs):
                if read == tensor and self.moved(operator, number):
                    return operator, number
        return None
