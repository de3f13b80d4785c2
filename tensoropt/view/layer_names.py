"""The layer of each operator of a plan: the script's name scopes that hold weights."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from tensoropt.graph.operator import GRADIENT, VARIABLE_TYPES
from tensoropt.plan.operator_plan import OperatorPlan
from tensoropt.plan.plan import Plan
from tensoropt.tdl import types_with

__all__ = ["OPTIMIZER", "layer_names"]

OPTIMIZER = "optimizer"
"""The layer of operators that use the gradients of several layers."""

_MOST_MATRICES = 8
"""A scope with more weight matrices is no layer: each of its matrices is one."""
_SAME_VALUE = types_with(value="same")


def layer_names(plan: Plan) -> dict[str, str]:
    """The layer of each operator, by name.

    A layer is a scope that holds weights, with all scopes inside it that hold no matrix. In a scope
    without a name, or with many matrices, each matrix begins a layer of the matrix's name. Updates
    belong to the layer of their variable.
    """
    return _Layers(plan).names


class _Layers:
    """The assignment of operators to layers, in the order of the step."""

    def __init__(self, plan: Plan) -> None:
        self._operators = {operator.name: operator for operator in plan.operators}
        self._order = list(plan.operators)
        weights = [operator for operator in self._order if operator.variable == "weights"]
        matrices = Counter(_scope(each.name) for each in weights if len(each.shape) > 1)
        self._flat = {scope for scope, n in matrices.items() if n > _MOST_MATRICES or not scope}
        self._scopes = set[str]()
        for weight in weights:
            scope = _scope(weight.name)
            if scope not in matrices:  # a normalisation within a layer
                scope = next((each for each in _outer(scope) if each in matrices), scope)
            self._scopes.update(_outer(scope))
        self._matrices = {each.name for each in weights if len(each.shape) > 1}
        self.names: dict[str, str] = {}
        self._after_gradients = set[str]()
        self._assign()

    def _assign(self) -> None:
        """Assign forward operators, then the weights that they read, then updates and slots."""
        variables = [each for each in self._order if each.type in VARIABLE_TYPES]
        for operator in self._order:
            if operator.type not in VARIABLE_TYPES and not self._uses_gradients(operator):
                self.names[operator.name] = self._forward(operator)
        readers = self._first_readers()
        for operator in variables:
            if operator.variable == "weights":
                self.names[operator.name] = self._of_weight(operator, readers)
        for operator in self._order:
            if operator.name in self._after_gradients:
                self._update(operator)
        readers = self._first_readers()
        for operator in variables:
            self.names.setdefault(operator.name, readers.get(operator.name, OPTIMIZER))

    def _first_readers(self) -> dict[str, str]:
        """The layer of the first operator that reads an operator, by name."""
        readers: dict[str, str] = {}
        for operator in self._order:
            for name in operator.reads:
                if operator.name in self.names:
                    readers.setdefault(name, self.names[operator.name])
        return readers

    def _of_weight(self, operator: OperatorPlan, readers: Mapping[str, str]) -> str:
        scope = _scope(operator.name)
        if scope in self._flat and operator.name in self._matrices:
            return operator.name
        return self._in_scope(scope) or readers.get(operator.name, operator.name)

    def _uses_gradients(self, operator: OperatorPlan) -> bool:
        is_after = operator.type == GRADIENT or any(
            name in self._after_gradients for name in operator.reads
        )
        if is_after:
            self._after_gradients.add(operator.name)
        return is_after

    def _in_scope(self, scope: str) -> str:
        """The innermost layer's scope around a scope; empty if there is none."""
        for outer in _outer(scope):
            if outer in self._scopes:
                return "" if outer in self._flat else outer
        return ""

    def _forward(self, operator: OperatorPlan) -> str:
        scope = _scope(operator.name)
        if named := self._in_scope(scope):
            return named
        matrix = self._matrix(operator)
        if matrix is not None:
            return matrix
        is_outside = bool(scope) and not any(outer in self._flat for outer in _outer(scope))
        if not is_outside:
            before = [self.names[name] for name in operator.reads if name in self.names]
            if before:
                return before[-1]
        return operator.name.partition("/")[0]

    def _matrix(self, operator: OperatorPlan) -> str | None:
        """The weight matrix that an operator reads; None if it reads none."""
        for name in operator.reads:
            while name in self._operators:
                if name in self._matrices:
                    return name
                producer = self._operators[name]
                if producer.type not in _SAME_VALUE or not producer.reads:
                    break
                name = producer.reads[0]
        return None

    def _update(self, operator: OperatorPlan) -> None:
        """Assign a gradient or an operator that uses gradients."""
        layers = dict.fromkeys(
            self.names[name]
            for name in operator.reads
            if name in self.names and (name in self._after_gradients or operator.type == GRADIENT)
        )
        of_variables = [
            self.names[name]
            for name in operator.reads
            if name in self.names and self._operators[name].type in VARIABLE_TYPES
        ]
        if of_variables:
            self.names[operator.name] = of_variables[0]
        else:
            self.names[operator.name] = next(iter(layers)) if len(layers) == 1 else OPTIMIZER


def _scope(name: str) -> str:
    return name.rpartition("/")[0]


def _outer(scope: str) -> Iterator[str]:
    """A scope and all scopes around it, the innermost first."""
    while scope:
        yield scope
        scope = scope.rpartition("/")[0]
    yield ""
