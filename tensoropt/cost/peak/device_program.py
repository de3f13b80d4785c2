"""What one device runs in a step: kernels in the order in which they were emitted, as plain data.

`tensoropt.execution.runtime.dry_run` describes an emitted TensorFlow graph in these words;
`tensoropt.cost.peak.program_peak` computes its peak from them, without TensorFlow.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.resharding import Step
from tensoropt.tensor_spec import TensorSpec

__all__ = ["DeviceProgram", "Kernel"]

Source = tuple[int, int]
"""Number of a kernel and of its output."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """One operation of a device's graph, at local shapes.

    Attributes:
        name: of the operation.
        type: TensorFlow's.
        inputs: what makes each.
        outputs: local shapes, with what is known of dimensions that only a run decides.
        after: kernels that run before it though it reads nothing of theirs.
        operands: inputs that are small constants, by number.
        equation: of an Einsum.
        steps: of what communicates: one of an operator in C++. Empty for other kernels.
    """

    name: str
    type: str
    inputs: tuple[Source, ...]
    outputs: tuple[TensorSpec, ...]
    after: tuple[int, ...] = ()
    operands: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    equation: str = ""
    steps: tuple[Step, ...] = ()


@dataclass(frozen=True, slots=True)
class DeviceProgram:
    """The kernels of one device, numbered in the order of emission.

    Attributes:
        kernels: all that the step's targets need; each comes after what it reads.
        mesh: all devices.
        rank: of this one.
        kept_bytes: what other programs leave: constants that variables were initialised with.
    """

    kernels: tuple[Kernel, ...]
    mesh: Mesh
    rank: int = 0
    kept_bytes: int = 0
