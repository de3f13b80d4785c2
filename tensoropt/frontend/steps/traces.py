"""The choice of the trace of a step that serves a call.

As with ``tf.function(reduce_retracing=True)``, the first call is traced with its shapes. For a call
with other shapes the step is traced with the differing extents unknown, and this trace serves all
calls that fit it. A step that needs to know an extent is traced for each shape.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tensoropt.errors import GraphError
from tensoropt.frontend.inputs.step_arguments import Arguments, Form, fits, widened
from tensoropt.frontend.steps.step_graph import StepGraph, home_changes, home_of, settle
from tensoropt.frontend.steps.traced_step import TracedStep, traced_step
from tensoropt.frontend.steps.variable_values import only_captured

__all__ = ["Traces"]

_Shapes = tuple[tuple[int, ...], ...]


@dataclass(slots=True)
class _Variants:
    """The traces of calls that differ only in shapes.

    Attributes:
        traces: each trace with its forms of the arguments; the one for most calls first.
        failed: forms with which the step cannot be traced.
        first: the shapes fed in the first planned call.
    """

    traces: list[tuple[tuple[Form, ...], TracedStep]] = field(default_factory=list)
    failed: list[tuple[Form, ...]] = field(default_factory=list)
    first: _Shapes | None = None


class Traces:
    """The traces of one step.

    Attributes:
        function: the Python function.
        replaced: traces that serve no calls any more.
        left: graphs whose variables have all moved to the graph of a trace.
    """

    def __init__(self, step: Callable[..., Any]) -> None:
        self.function: Callable[..., Any] = getattr(step, "python_function", step)
        self.replaced: list[TracedStep] = []
        self.left: list[StepGraph] = []
        self._signature = getattr(step, "input_signature", None)
        self._variants: dict[Any, _Variants] = {}
        self._home_changes = 0

    def arguments(self, args: Any, kwargs: Any, specs: Any = None) -> Arguments:
        """Describe a call; see `Arguments.of`."""
        if self._signature is not None:
            return Arguments.by_signature(self.function, self._signature, args, kwargs)
        return Arguments.of(args, kwargs, specs)

    def serving(self, given: Arguments) -> TracedStep:
        """The trace that serves a call; made if there is none yet, or if its variables have moved
        to the graph of another step."""
        if self._home_changes != home_changes():
            self._home_changes = home_changes()
            self._replace_moved()
        kind = self._variants.setdefault(given.key, _Variants())
        for pattern, traced in kind.traces:
            if fits(given.exact, pattern):
                return traced
        if given.forms in kind.failed:
            given = given._replace(forms=given.exact)
        wider = self._relaxed(kind, given)
        if wider is not None or given.forms == given.exact:
            return wider or self._trace(kind, given, given.forms)
        try:
            return self._trace(kind, given, given.forms)
        except GraphError:  # a plan needs more extents than the data set declares
            kind.failed.append(given.forms)
            return self._trace(kind, given, given.exact)

    def planned_shapes(
        self, given: Arguments, traced: TracedStep, values: Mapping[str, Any]
    ) -> dict[str, tuple[int, ...]]:
        """The shapes to plan a trace for, by placeholder.

        They are the shapes of the first planned call if the trace accepts them, because a later
        call may have a smaller last batch.

        Args:
            given: the call.
            traced: the trace that serves it.
            values: the values that the call feeds.
        """
        kind = self._variants[given.key]
        shapes = tuple(tuple(value.shape) for value in values.values())
        kind.first = kind.first or shapes
        declared = [traced.graph.get_tensor_by_name(f"{name}:0").shape for name in values]
        pairs = list(zip(declared, kind.first, strict=False))
        is_like = len(kind.first) == len(shapes) and all(a.is_compatible_with(b) for a, b in pairs)
        return dict(zip(values, kind.first if is_like else shapes, strict=True))

    def clear(self) -> list[TracedStep]:
        """Forget all traces, and return them."""
        traces = [traced for kind in self._variants.values() for _, traced in kind.traces]
        traces += self.replaced
        self._variants.clear()
        self.replaced.clear()
        return traces

    def _replace_moved(self) -> None:
        """Replace traces without gradients that are not in the graph that has their variables."""
        for kind in self._variants.values():
            moved = [traced for _, traced in kind.traces if _has_moved(traced)]
            kind.traces = [item for item in kind.traces if item[1] not in moved]
            self.replaced += moved

    def _relaxed(self, kind: _Variants, given: Arguments) -> TracedStep | None:
        """A new trace for this call and the earlier ones; None if the step cannot be traced so."""
        pattern: tuple[Form, ...] | None = given.forms
        for earlier in [*(forms for forms, _ in kind.traces), *kind.failed]:
            pattern = pattern and widened(pattern, earlier)
        if not kind.traces or pattern is None or pattern in kind.failed:
            return None
        before = kind.traces
        kind.traces = []
        try:
            traced = self._trace(kind, given, pattern)
        except Exception:  # the step's; tracing with the call's own shapes raises it again
            kind.traces = before
            kind.failed.append(pattern)
            return None
        self.replaced += [old for _, old in before]
        return traced

    def _trace(self, kind: _Variants, given: Arguments, forms: tuple[Form, ...]) -> TracedStep:
        args, kwargs = given.specs(forms)
        with only_captured():
            traced = traced_step(self.function, args, kwargs, given.has_examples)
        traced.home.owners += traced.is_owner
        self.left += settle(traced.home)
        kind.traces.append((forms, traced))
        return traced


def _has_moved(traced: TracedStep) -> bool:
    """Whether a step without gradients is not in the graph that has its variables."""
    if traced.trains:
        return False
    variables = [captured.variable for captured in traced.captured]
    return bool(variables) and home_of(variables) is not traced.home
