"""The program of one device for a step: kernels in the order of emission, as plain data.

`tensoropt.execution.runtime.dry_run` describes an emitted TensorFlow graph in this form.
`tensoropt.cost.peak.program_peak` computes its peak memory from it, without TensorFlow.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.resharding import Step
from tensoropt.tensor_spec import TensorSpec

__all__ = ["DeviceProgram", "Kernel", "Source"]

Source = tuple[int, int]
"""Number of a kernel, and number of its output."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """One operation of a device's graph, at local shapes.

    Attributes:
        name: name of the operation.
        type: TensorFlow's type.
        inputs: for each input the output that it reads.
        outputs: local shapes of the outputs, with estimates for open dimensions.
        after: kernels that run before it, although it reads none of their outputs.
        operands: values of inputs that are small constants, by number of the input.
        equation: the equation of an Einsum.
        steps: the resharding step that a kernel in C++ runs, or the steps of a Python call. Empty
            for other kernels.
        unchanged: the outputs of a loop that are its inputs of the same numbers.
        body_bytes: the memory that an iteration of a loop takes besides its inputs.
    """

    name: str
    type: str
    inputs: tuple[Source, ...]
    outputs: tuple[TensorSpec, ...]
    after: tuple[int, ...] = ()
    operands: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    equation: str = ""
    steps: tuple[Step, ...] = ()
    unchanged: tuple[int, ...] = ()
    body_bytes: int = 0


@dataclass(frozen=True, slots=True)
class DeviceProgram:
    """The kernels of one device, numbered in the order of emission.

    Attributes:
        kernels: all kernels that the step's targets need. Each comes after the kernels it reads.
        mesh: all devices.
        rank: this device.
        kept_bytes: memory that other programs keep: initial values of variables.
        repeated: outputs of a microbatch, each with the number of microbatches that are not
            emitted. Their outputs are as large, and are in memory as long.
    """

    kernels: tuple[Kernel, ...]
    mesh: Mesh
    rank: int = 0
    kept_bytes: int = 0
    repeated: Mapping[Source, int] = field(default_factory=dict)
