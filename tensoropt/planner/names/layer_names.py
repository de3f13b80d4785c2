"""The layer of each operator of a step: the script's name scopes that hold weights."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from tensoropt.graph.operator import GRADIENT, VARIABLE_TYPES
from tensoropt.plan.operator_plan import NAMES_ONLY
from tensoropt.planner.names.named_operators import NamedOperator
from tensoropt.tdl import types_with

__all__ = ["NO_WORK", "OPTIMIZER", "forward_work", "layer_names"]

OPTIMIZER = "optimizer"
"""The layer of operators that use the gradients of several layers."""

_MOST_MATRICES = 8
"""A scope with more weight matrices is no layer: each of its matrices is one."""
_SAME_VALUE = types_with(value="same")
NO_WORK = VARIABLE_TYPES | NAMES_ONLY | {GRADIENT, "Const"}
"""Types of operators that compute nothing by themselves."""
_FED = types_with(role="placeholder")


def layer_names(operators: Iterable[NamedOperator]) -> dict[str, str]:
    """The layer of each operator, by name.

    A layer is a scope that holds weights, with all scopes inside it that hold no matrix. In a scope
    without a name, or with many matrices, each matrix begins a layer of the matrix's name. Updates
    belong to the layer of their variable.
    """
    return _Layers(operators).names


def forward_work(operators: Iterable[NamedOperator]) -> dict[str, list[str]]:
    """The operators of each layer that compute in its forward pass, in the order of the step.

    Variables, gradients and updates are left out, and placeholders.
    """
    layers = _Layers(operators)
    work: dict[str, list[str]] = {}
    for operator in layers.order:
        is_idle = operator.type in NO_WORK or operator.type in _FED
        if not is_idle and operator.name not in layers.updates:
            work.setdefault(layers.names[operator.name], []).append(operator.name)
    return work


class _Layers:
    """The assignment of operators to layers, in the order of the step."""

    def __init__(self, operators: Iterable[NamedOperator]) -> None:
        self.order = list(operators)
        self._operators = {operator.name: operator for operator in self.order}
        weights = [operator for operator in self.order if operator.variable == "weights"]
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
        self.updates = self._after_gradients()
        self._aliases = self._scopes_of_readers()
        self._beside = {_scope(alias) for alias in self._aliases} - {""}
        self._assign()

    def _after_gradients(self) -> set[str]:
        """Gradients, the operators that use them, and all others in the scopes of these."""
        after = set[str]()
        for operator in self.order:
            if operator.type == GRADIENT or not after.isdisjoint(operator.reads):
                after.add(operator.name)
        scopes = {name.partition("/")[0] for name in after if "/" in name}
        scopes -= {scope.partition("/")[0] for scope in self._scopes}
        return after | {
            operator.name
            for operator in self.order
            if operator.type not in VARIABLE_TYPES and operator.name.partition("/")[0] in scopes
        }

    def _scopes_of_readers(self) -> dict[str, str]:
        """The layers of scopes that have other names than the weights that are read in them.

        Keras has the weights of "model/dense" in operators of "model_1/dense_1".
        """
        aliases: dict[str, str] = {}
        for operator in self.order:
            weight = self._weight(operator)
            scope = _scope(operator.name)
            if weight is None or operator.name in self.updates or self._in_scope(scope):
                continue
            layer = self._in_scope(_scope(weight))
            if layer and operator.type not in _SAME_VALUE:
                aliases.setdefault(_first(scope, layer.count("/") + 1), layer)
        return {scope: layer for scope, layer in aliases.items() if scope}

    def _assign(self) -> None:
        """Assign forward operators, then the weights that they read, then updates and slots."""
        variables = [each for each in self.order if each.type in VARIABLE_TYPES]
        for operator in self.order:
            if operator.type not in VARIABLE_TYPES and operator.name not in self.updates:
                self.names[operator.name] = self._forward(operator)
        readers = self._first_readers()
        for operator in variables:
            if operator.variable == "weights":
                self.names[operator.name] = self._of_weight(operator, readers)
        for _ in range(2):  # updates of slots follow gradients; other updates follow the slots
            for operator in self.order:
                if operator.name in self.updates:
                    self.names[operator.name] = self._update(operator)
            readers = self._first_readers()
            for operator in variables:
                if operator.variable != "weights":
                    self.names[operator.name] = readers.get(operator.name, OPTIMIZER)

    def _first_readers(self) -> dict[str, str]:
        """The layer of the first operator that reads an operator, by name; `OPTIMIZER` if no
        operator of another layer does."""
        readers: dict[str, str] = {}
        for operator in self.order:
            layer = self.names.get(operator.name, OPTIMIZER)
            for name in operator.reads:
                if readers.get(name, OPTIMIZER) == OPTIMIZER:
                    readers[name] = layer
        return readers

    def _of_weight(self, operator: NamedOperator, readers: Mapping[str, str]) -> str:
        scope = _scope(operator.name)
        if scope in self._flat and operator.name in self._matrices:
            return operator.name
        return self._in_scope(scope) or readers.get(operator.name, operator.name)

    def _in_scope(self, scope: str) -> str:
        """The innermost layer's scope around a scope; empty if there is none."""
        for outer in _outer(scope):
            if outer in self._scopes:
                return "" if outer in self._flat else outer
        return ""

    def _forward(self, operator: NamedOperator) -> str:
        scope = _scope(operator.name)
        if named := self._in_scope(scope) or self._by_readers(scope):
            return named
        weight = self._weight(operator)
        if weight in self._matrices:
            return weight or ""
        is_outside = bool(scope) and not any(outer in self._flat for outer in _outer(scope)[:-1])
        if not is_outside:
            before = [self.names[name] for name in operator.reads if name in self.names]
            if before:
                return before[-1]
        return operator.name.partition("/")[0]

    def _by_readers(self, scope: str) -> str:
        """The layer of a scope among those in which weights of other scopes are read."""
        for outer in _outer(scope):
            if outer in self._aliases:
                return self._aliases[outer]
        return next((outer for outer in _outer(scope) if _scope(outer) in self._beside), "")

    def _weight(self, operator: NamedOperator) -> str | None:
        """The weight that an operator reads; None if it reads none."""
        for name in operator.reads:
            while name in self._operators:
                producer = self._operators[name]
                if producer.variable == "weights":
                    return name
                if producer.type not in _SAME_VALUE or not producer.reads:
                    break
                name = producer.reads[0]
        return None

    def _update(self, operator: NamedOperator) -> str:
        """The layer of a gradient or of an operator of an optimizer."""
        of_variables, layers = [], dict[str, None]()
        for name in operator.reads:
            layer = self.names.get(name, OPTIMIZER)
            if name not in self._operators or layer == OPTIMIZER:
                continue
            if self._operators[name].type in VARIABLE_TYPES:
                of_variables.append(layer)
            elif name in self.updates:
                layers[layer] = None
        if of_variables:
            return of_variables[0]
        return next(iter(layers)) if len(layers) == 1 else OPTIMIZER


def _scope(name: str) -> str:
    return name.rpartition("/")[0]


def _first(scope: str, depth: int) -> str:
    """A scope cut to a number of parts."""
    return "/".join(scope.split("/")[:depth])


def _outer(scope: str) -> list[str]:
    """A scope and all scopes around it, the innermost first; the last is the one without a name."""
    scopes = []
    while scope:
        scopes.append(scope)
        scope = scope.rpartition("/")[0]
    return [*scopes, ""]
