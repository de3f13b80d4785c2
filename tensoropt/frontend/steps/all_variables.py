"""Which variables a traced step captures."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tensoropt.tensorflow_private import func_graph, resource_variable_ops

__all__ = ["all_variables"]


@contextmanager
def all_variables(traced: func_graph.FuncGraph) -> Iterator[None]:
    """Let a function's graph know of variables that are never read, too: a kernel that updates
    them, as of tf_keras's older optimizers, is given their handles alone."""
    kind = resource_variable_ops.BaseResourceVariable
    found: dict[int, Any] = {}

    def handle(variable: Any) -> Any:
        found[id(variable._handle)] = variable
        return variable._handle

    before = kind.handle
    kind.handle = property(handle)
    try:
        yield
    finally:
        kind.handle = before
    with traced.as_default():  # a handle is asked for, not the value that it may stand for
        known = {id(each._handle) for each in traced.variables}
    captured = [id(external) for external, _ in traced.captures]
    more = [found[each] for each in captured if each in found and each not in known]
    traced.variables = [*traced.variables, *more]
