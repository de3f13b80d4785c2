"""What the backward pass finds kept of the forward pass, and what it makes again.

A configuration says it of each operator's outputs (`tensoropt.parallel.configuration.KEPT`): the
three configurations of tensor reuse (TensorOpt, section 4.2), and computing the operator again.
Search, execution and the prediction of the peak ask here, so that they agree.
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
    """Whether an operator run again gives the same: it draws nothing, holds and changes nothing."""
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
    """Whether an operator reads tensors only, no variables themselves, and changes none."""
    return not operator.mutates and not any(_is_no_tensor(s.dtype) for s in operator.input_specs)


def _is_no_tensor(dtype: str) -> bool:
    return dtype in ("resource", "variant", "string") or dtype.endswith("_ref")


@per_graph
def differentiates_gradients(graph: Graph) -> bool:
    """Whether some gradient is of what a gradient has been used for.

    Then everything is kept: what the backward pass makes again is not differentiated. What arrives
    at a gradient is not differentiated either, and a microbatch waits for the one before, no more.
    """
    above: set[str] = set()
    for operator in graph:
        before = {tensor.operator for tensor in operator.inputs}
        if not operator.copy_of:
            before.update(operator.control_inputs)
        tag = operator.gradient
        if tag is not None and any(tensor.operator in above for tensor in tag.ys):
            return True
        if tag is not None or before & above:
            above.add(operator.name)
    return False


class Keeping:
    """What a strategy keeps for the backward pass.

    Args:
        strategy: of the graph.

    Attributes:
        active: whether anything is made again at all.
    """

    def __init__(self, strategy: Strategy) -> None:
        self._strategy = strategy
        self._graph = strategy.graph
        some = any(
            configuration.kept != "both" for configuration in strategy.configurations.values()
        )
        self.active = some and not differentiates_gradients(self._graph)
        self._remade: dict[str, bool] = {}

    def kept(self, name: str) -> str:
        """What is kept of an operator's outputs, of `KEPT`."""
        if not self.active:
            return "both"
        kept = self._strategy.configurations[name].kept
        if kept == "recomputed" and not recomputable(self._graph[name]):
            return "both"
        return kept

    def remade(self, name: str) -> bool:
        """Whether the backward pass makes an operator's outputs again, where they are made.

        A view's are whenever the tensor it is a view of is.
        """
        if name not in self._remade:
            operator = self._graph[name]
            found = self.kept(name) == "recomputed"
            if self.active and operator.type in VIEWS and not operator.is_constant:
                found = self.read_again(operator, 0)
            self._remade[name] = found
        return self._remade[name]

    def moved(self, operator: Operator, number: int) -> bool:
        """Whether an input is resharded on its way to an operator."""
        if number in operator.mutates or operator.input_specs[number].dtype == "resource":
            return False
        made = self._strategy.output_slot(operator.inputs[number])
        return made.forward != self._strategy.input_slot(operator, number).forward

    def read_again(self, operator: Operator, number: int) -> bool:
        """Whether an input, as an operator reads it, is not kept: the backward pass makes it
        again."""
        if not self.active:
            return False
        source = operator.inputs[number].operator
        if self._graph[source].is_constant:
            return False
        if self.moved(operator, number):
            return self.kept(source) in ("before", "recomputed")
        return self.remade(source)

    def returned_from(self, tensor: TensorName) -> tuple[Operator, int] | None:
        """Where a tensor is kept after resharding alone, the operator and input that has the copy
        from which it comes back."""
        if self.kept(tensor.operator) != "after":
            return None
        for operator in self._graph:
            if operator.gradient is not None:  # it names the tensor, and reads no copy
                continue
            for number, read in enumerate(operator.inputs):
                if read == tensor and self.moved(operator, number):
                    return operator, number
        return None
