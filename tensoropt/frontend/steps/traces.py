"""Which trace of a step serves a call.

As with ``tf.function(reduce_retracing=True)``: the first call is traced with its shapes. A call
with other shapes is traced with the differing extents unknown, and that trace serves all calls that
fit it. A step that needs to know an extent is traced for each shape.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tensoropt.errors import GraphError
from tensoropt.frontend.inputs.step_arguments import Arguments, Form, fits, widened
from tensoropt.frontend.steps.traced_step import TracedStep, traced_step
from tensoropt.frontend.steps.variable_values import only_captured

__all__ = ["Traces"]

_Shapes = tuple[tuple[int, ...], ...]


@dataclass(slots=True)
class _Kind:
    """The traces of calls that differ in shapes alone.

    Attributes:
        traces: each with the forms that it has for the arguments; the one for most calls first.
        failed: forms that the step cannot be traced with.
        first: the shapes of what was fed first.
    """

    traces: list[tuple[tuple[Form, ...], TracedStep]] = field(default_factory=list)
    failed: list[tuple[Form, ...]] = field(default_factory=list)
    first: _Shapes | None = None


class Traces:
    """The traces of one step.

    Args:
        step: a function, or a ``tf.function``.

    Attributes:
        function: the Python function.
        replaced: traces that serve no call any more.
    """

    def __init__(self, step: Callable[..., Any]) -> None:
        self.function: Callable[..., Any] = getattr(step, "python_function", step)
        self.replaced: list[TracedStep] = []
        self._signature = getattr(step, "input_signature", None)
        self._kinds: dict[Any, _Kind] = {}

    def arguments(self, args: Any, kwargs: Any, specs: Any = None) -> Arguments:
        """Describe a call; see `Arguments.of`."""
        if self._signature is not None:
            return Arguments.by_signature(self.function, self._signature, args, kwargs)
        return Arguments.of(args, kwargs, specs)

    def serving(self, given: Arguments) -> TracedStep:
        """The trace that serves a call, made where there is none."""
        kind = self._kinds.setdefault(given.key, _Kind())
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
        except GraphError:  # a plan needs to know more than the data set says
            kind.failed.append(given.forms)
            return self._trace(kind, given, given.exact)

    def planned_shapes(
        self, given: Arguments, traced: TracedStep, values: Mapping[str, Any]
    ) -> dict[str, tuple[int, ...]]:
        """The shapes to plan a trace for, by placeholder: those of the first call that was planned
        where they fit, as a last batch is smaller.

        Args:
            given: the call.
            traced: serves it.
            values: what it feeds.
        """
        kind = self._kinds[given.key]
        shapes = tuple(tuple(value.shape) for value in values.values())
        kind.first = kind.first or shapes
        declared = [traced.graph.get_tensor_by_name(f"{name}:0").shape for name in values]
        pairs = list(zip(declared, kind.first, strict=False))
        is_like = len(kind.first) == len(shapes) and all(a.is_compatible_with(b) for a, b in pairs)
        return dict(zip(values, kind.first if is_like else shapes, strict=True))

    def clear(self) -> list[TracedStep]:
        """Forget all traces.

        Returns:
            The traces.
        """
        found = [traced for kind in self._kinds.values() for _, traced in kind.traces]
        found += self.replaced
        self._kinds.clear()
        self.replaced.clear()
        return found

    def _relaxed(self, kind: _Kind, given: Arguments) -> TracedStep | None:
        """A trace for this call and those before; None where there is none."""
        pattern: tuple[Form, ...] | None = given.forms
        for each in [*(forms for forms, _ in kind.traces), *kind.failed]:
            pattern = pattern and widened(pattern, each)
        if not kind.traces or pattern is None or pattern in kind.failed:
            return None
        before = kind.traces
        kind.traces = []
        try:
            traced = self._trace(kind, given, pattern)
        except Exception:  # of the step: the trace for its shapes alone raises it again
            kind.traces = before
            kind.failed.append(pattern)
            return None
        self.replaced += [each for _, each in before]
        return traced

    def _trace(self, kind: _Kind, given: Arguments, forms: tuple[Form, ...]) -> TracedStep:
        args, kwargs = given.specs(forms)
        with only_captured():
            traced = traced_step(self.function, args, kwargs, given.has_examples)
        kind.traces.append((forms, traced))
        return traced
