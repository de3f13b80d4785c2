"""Models of the memory that an operator takes on a device: m = m_p + m_t of equation 1 (TensorOpt).

A model is a function from an operator's footprint on one device to its bytes, which are summed over
a strategy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tensoropt.errors import OptionError

__all__ = [
    "Footprint",
    "MemoryModel",
    "execution_memory",
    "memory_model",
    "paper_memory",
]


@dataclass(frozen=True, slots=True)
class Footprint:
    """The bytes that one device holds for one operator under one configuration.

    Attributes:
        variable_bytes: bytes of the variable, 0 for other operators.
        output_bytes: bytes of the outputs that are computed, 0 for a variable.
        added_bytes: the part of ``output_bytes`` that is a bias added to its input in place.
        kept_bytes: the part of ``output_bytes`` that the backward pass reads.
        gradient_bytes: bytes of a variable's gradient, 0 for other operators.
        moved_bytes: bytes of resharded copies that the backward pass reads.
        gathered_bytes: bytes of a copy of a variable in another layout than it is stored in. If the
            backward pass does not read it, only the bytes beyond the stored piece count.
    """

    variable_bytes: int = 0
    output_bytes: int = 0
    added_bytes: int = 0
    kept_bytes: int = 0
    gradient_bytes: int = 0
    moved_bytes: int = 0
    gathered_bytes: int = 0

    def __post_init__(self) -> None:
        counts = {name: getattr(self, name) for name in self.__slots__}
        if min(counts.values()) < 0:
            shown = ", ".join(f"{name}={count}" for name, count in counts.items() if count)
            raise OptionError(f"the bytes of a footprint are at least 0. Got {shown}.")


MemoryModel = Callable[[Footprint], int]
"""Returns the bytes that a device keeps until the step ends."""


def paper_memory(footprint: Footprint) -> int:
    """Return the memory in the paper's model: variables, and the outputs of all operators.

    In equation 1 (TensorOpt), m_p is ``variable_bytes`` and m_t is ``output_bytes``. The paper's
    operators are layers, in which a bias is added in place: VGG16 at batch 256 then takes 30 GB
    (Table 1), and 44 GB if the sums counted as well. Gradients, workspace of kernels and network
    buffers are left out (the paper's footnote 2).

    In the paper's space a variable is stored in the layout that its operator reads. Copies for
    other readers, and gathered copies of variables that are stored in pieces (not in the paper),
    count.
    """
    kept = footprint.variable_bytes + footprint.gathered_bytes
    return kept + footprint.output_bytes - footprint.added_bytes


def execution_memory(footprint: Footprint) -> int:
    """Return the memory that execution takes.

    Variables, their gradients, and all copies of tensors that the backward pass reads are kept.
    Other tensors do not count: most are freed before the next one is made. A gathered copy of a
    variable counts even if the backward pass does not read it, because it may be larger
    than everything that is kept (for example a table of embeddings). Small ones, such as biases, do
    not count.

    The sum over a strategy is an upper bound of the kept bytes at any time, since tensors are freed
    while gradients are computed. `tensoropt.cost.peak.estimated_peak` follows a step operator by
    operator.
    """
    kept = footprint.variable_bytes + footprint.kept_bytes
    return kept + footprint.gradient_bytes + footprint.moved_bytes + footprint.gathered_bytes


_MODELS: dict[str, MemoryModel] = {"execution": execution_memory, "paper": paper_memory}


def memory_model(name: str) -> MemoryModel:
    """Return the memory model of a name.

    Raises:
        OptionError: if there is no model of this name.
    """
    if name not in _MODELS:
        raise OptionError(f"a memory model is one of {', '.join(_MODELS)}. Got {name!r}.")
    return _MODELS[name]
