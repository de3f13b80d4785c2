"""The logical graph: operators and the tensors between them, plain data without TensorFlow."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tensoropt.errors import GraphError
from tensoropt.tdl import types_with
from tensoropt.tensor_spec import TensorSpec

__all__ = [
    "CHANGED",
    "GRADIENT",
    "VARIABLE_TYPES",
    "GradientTag",
    "Graph",
    "Operator",
    "TensorName",
]

GRADIENT = "Gradient"
"""Type of the operator that stands for one gradient which the script asked for."""

CHANGED = "_changed"
"""Attribute of a copy of a script's operator: names of those attributes that it has otherwise."""

VARIABLE_TYPES = types_with(role="variable")
"""Types of operators that hold state."""

PLACEHOLDER_TYPES = types_with(role="placeholder")


@dataclass(frozen=True, slots=True)
class TensorName:
    """One output of an operator; prints as TensorFlow names it, ``operator:index``."""

    operator: str
    index: int

    @classmethod
    def parse(cls, name: str) -> TensorName:
        """The inverse of ``str``; a bare operator name is its first output."""
        operator, _, index = name.partition(":")
        return cls(operator, int(index or 0))

    def __str__(self) -> str:
        return f"{self.operator}:{self.index}"


@dataclass(frozen=True, slots=True)
class GradientTag:
    """One gradient that the script asked for: d(sum of ys)/dx.

    Attributes:
        call: number of the call to ``tf.gradients``, in the order of the script.
        part: "dense", or "values" and "indices" of a sparse gradient.
        ys: the differentiated tensors.
        x: the tensor (for a resource variable its handle) differentiated by.
        grad_ys: gradients arriving at ys, None where they are ones.
        stop_gradients: tensors held constant.
        after: operators that run before the gradient is computed.
    """

    call: int
    part: str
    ys: tuple[TensorName, ...]
    x: TensorName
    grad_ys: tuple[TensorName | None, ...]
    stop_gradients: tuple[TensorName, ...]
    after: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Operator:
    """One operator of the logical graph.

    Attributes:
        name: the script's name of it.
        type: TensorFlow's operator type, or `GRADIENT`.
        inputs: the tensors it reads.
        input_specs: what is known of them; a variable's handle or reference has the variable's
            shape, and a folded tensor its value.
        outputs: its tensors.
        attributes: TensorFlow's attributes as plain values.
        control_inputs: operators that run before it.
        mutates: the inputs that are variables it may change in place.
        gradient: for a `GRADIENT` operator, which one.
        synthetic: whether the importer made it, so that it is nowhere else in this form.
        copy_of: the script's operator that it is a copy of, where it has another name.
    """

    name: str
    type: str
    inputs: tuple[TensorName, ...]
    input_specs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    attributes: Mapping[str, object] = field(default_factory=dict)
    control_inputs: tuple[str, ...] = ()
    mutates: tuple[int, ...] = ()
    gradient: GradientTag | None = None
    synthetic: bool = False
    copy_of: str = ""

    @property
    def script_name(self) -> str:
        """The script's name of it, or of what it is a copy of."""
        return self.copy_of or self.name

    def value_spec(self, output: int) -> TensorSpec:
        """Shape and dtype of an output's values: a variable's own, where it is a handle."""
        spec = self.outputs[output]
        dtype = self.attributes.get("dtype", spec.dtype) if self.is_variable else spec.dtype
        return TensorSpec(spec.shape, str(dtype).removesuffix("_ref"))

    @property
    def predecessors(self) -> list[str]:
        """Names of the operators that it reads, and of those that it waits for."""
        return [*(tensor.operator for tensor in self.inputs), *self.control_inputs]

    @property
    def is_variable(self) -> bool:
        """Whether it holds state that other operators read and change."""
        return self.type in VARIABLE_TYPES

    @property
    def is_placeholder(self) -> bool:
        """Whether its value is fed."""
        return self.type in PLACEHOLDER_TYPES

    @property
    def is_constant(self) -> bool:
        """Whether its one value is known before anything runs."""
        return len(self.outputs) == 1 and self.outputs[0].value is not None

    def summary(self) -> str:
        """One line that two graphs agree on exactly where they agree on this operator."""
        parts = [f"{self.name} = {self.type}({', '.join(map(str, self.inputs))})"]
        parts += [f"{spec.dtype}{list(spec.shape)}" for spec in self.outputs]
        shown = {k: v for k, v in self.attributes.items() if not k.startswith("_")}
        parts += [f"{key}={shown[key]!r}" for key in sorted(shown)]
        if self.control_inputs:
            parts.append(f"after {', '.join(sorted(self.control_inputs))}")
        if self.is_constant and self.outputs[0].value is not None:
            parts.append(hashlib.sha256(self.outputs[0].value.tobytes()).hexdigest()[:12])
        return " ".join(parts)


class Graph:
    """Operators in topological order, by name."""

    def __init__(self, operators: Mapping[str, Operator]) -> None:
        self.operators = dict(operators)
        position = {name: number for number, name in enumerate(self.operators)}
        for operator in self:
            for tensor in operator.inputs:
                if position.get(tensor.operator, len(position)) >= position[operator.name]:
                    raise GraphError(
                        "a graph lists every operator after those it reads. Got "
                        f"{operator.name!r} before {tensor.operator!r}."
                    )

    def __iter__(self) -> Iterator[Operator]:
        return iter(self.operators.values())

    def __len__(self) -> int:
        return len(self.operators)

    def __contains__(self, name: object) -> bool:
        return name in self.operators

    def __getitem__(self, name: str) -> Operator:
        return self.operators[name]

    def spec(self, tensor: TensorName) -> TensorSpec:
        """What is known of a tensor."""
        return self.operators[tensor.operator].outputs[tensor.index]

    def consumers(self) -> dict[TensorName, list[tuple[Operator, int]]]:
        """Who reads each tensor, and as which input."""
        readers: dict[TensorName, list[tuple[Operator, int]]] = {}
        for operator in self:
            for number, tensor in enumerate(operator.inputs):
                readers.setdefault(tensor, []).append((operator, number))
        return readers

    def summaries(self) -> list[str]:
        """`Operator.summary` of all operators, in order."""
        return [operator.summary() for operator in self]

    def digest(self) -> str:
        """SHA-256 of the graph: equal for equal scripts, whatever the process."""
        return hashlib.sha256("\n".join(self.summaries()).encode()).hexdigest()
