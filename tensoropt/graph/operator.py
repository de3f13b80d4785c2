"""The logical graph: operators and the tensors between them, as plain data without TensorFlow."""

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
"""Type of the operator that stands for a gradient which the script computes."""

CHANGED = "_changed"
"""Attribute of a copy of a script's operator: names of the attributes that differ from the
script's."""

VARIABLE_TYPES = types_with(role="variable")
"""Types of operators that hold state."""

PLACEHOLDER_TYPES = types_with(role="placeholder")


@dataclass(frozen=True, slots=True)
class TensorName:
    """One output of an operator. It is printed in TensorFlow's form, ``operator:index``."""

    operator: str
    index: int

    @classmethod
    def parse(cls, name: str) -> TensorName:
        """Return the tensor of a printed name. An operator's name alone means its first output."""
        operator, _, index = name.partition(":")
        return cls(operator, int(index or 0))

    def __str__(self) -> str:
        return f"{self.operator}:{self.index}"


@dataclass(frozen=True, slots=True)
class GradientTag:
    """One gradient that the script computes: d(sum of ys)/dx.

    Attributes:
        call: number of the call of ``tf.gradients``, in the order of the script.
        part: "dense", or "values" or "indices" of a sparse gradient.
        ys: the tensors that are differentiated.
        x: the tensor they are differentiated by; for a resource variable its handle.
        grad_ys: the gradients of the ys; None stands for ones.
        stop_gradients: tensors that are held constant.
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
        name: its name in the script.
        type: TensorFlow's operator type, or `GRADIENT`.
        inputs: the tensors it reads.
        input_specs: specs of the inputs. A variable's handle or reference has the variable's shape,
            and a folded tensor has its value.
        outputs: specs of the outputs.
        attributes: TensorFlow's attributes as plain values.
        control_inputs: operators that run before it.
        mutates: numbers of the inputs that are variables it may change in place.
        gradient: for a `GRADIENT` operator, the gradient.
        synthetic: whether the importer added it, so that the script has no operator in this form.
        copy_of: for a copy of a script's operator, that operator's name.
        predecessors: names of the operators of its inputs and control inputs.
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
    predecessors: tuple[str, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        names = (*(tensor.operator for tensor in self.inputs), *self.control_inputs)
        object.__setattr__(self, "predecessors", names)

    @property
    def script_name(self) -> str:
        """The name of the script's operator: its own name, or that of the operator it is a copy
        of."""
        return self.copy_of or self.name

    def value_spec(self, output: int) -> TensorSpec:
        """Return the shape and dtype of an output's values: for a variable's handle, the
        variable's."""
        spec = self.outputs[output]
        dtype = self.attributes.get("dtype", spec.dtype) if self.is_variable else spec.dtype
        return TensorSpec(spec.shape, str(dtype).removesuffix("_ref"))

    @property
    def is_variable(self) -> bool:
        """Whether it is a variable."""
        return self.type in VARIABLE_TYPES

    @property
    def is_placeholder(self) -> bool:
        """Whether it is a placeholder."""
        return self.type in PLACEHOLDER_TYPES

    @property
    def is_constant(self) -> bool:
        """Whether it has one output, whose value is known before the step runs."""
        return len(self.outputs) == 1 and self.outputs[0].value is not None

    def summary(self) -> str:
        """Return one line that is equal in two graphs if and only if this operator is."""
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
        before: set[str] = set()
        for name, operator in self.operators.items():
            for tensor in operator.inputs:
                if tensor.operator not in before:
                    raise GraphError(
                        "a graph lists every operator after those it reads. Got "
                        f"{operator.name!r} before {tensor.operator!r}."
                    )
            before.add(name)

    def __iter__(self) -> Iterator[Operator]:
        return iter(self.operators.values())

    def __len__(self) -> int:
        return len(self.operators)

    def __contains__(self, name: object) -> bool:
        return name in self.operators

    def __getitem__(self, name: str) -> Operator:
        return self.operators[name]

    def spec(self, tensor: TensorName) -> TensorSpec:
        """Return the spec of a tensor."""
        return self.operators[tensor.operator].outputs[tensor.index]

    def consumers(self) -> dict[TensorName, list[tuple[Operator, int]]]:
        """Return the readers of each tensor, with the numbers of their inputs."""
        readers: dict[TensorName, list[tuple[Operator, int]]] = {}
        for operator in self:
            for number, tensor in enumerate(operator.inputs):
                readers.setdefault(tensor, []).append((operator, number))
        return readers

    def summaries(self) -> list[str]:
        """Return `Operator.summary` of all operators, in order."""
        return [operator.summary() for operator in self]

    def digest(self) -> str:
        """Return the SHA-256 of the graph, which is equal for equal scripts in all processes."""
        return hashlib.sha256("\n".join(self.summaries()).encode()).hexdigest()
