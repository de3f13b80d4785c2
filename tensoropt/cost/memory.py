"""How much memory an operator takes on a device: named models of equation 1's m = m_p + m_t.

A model is a function from an operator's footprint, plain numbers of one device, to its memory.
What is kept adds up over a strategy; of what is transient only the largest counts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tensoropt.errors import OptionError

__all__ = [
    "Footprint",
    "MemoryModel",
    "MemoryUse",
    "execution_memory",
    "memory_model",
    "paper_memory",
]


@dataclass(frozen=True, slots=True)
class Footprint:
    """What one device holds of one operator under one configuration.

    Attributes:
        variable_bytes: of the variable that the operator is; 0 for other operators.
        output_bytes: of the outputs that it computes; 0 for variables, whose output is theirs.
        added_bytes: of these, of a bias added onto its input in place.
        kept_bytes: of these, of outputs that the backward pass reads.
        gradient_bytes: of the variable's gradient that the operator stands for.
        moved_bytes: of a copy made by a resharding, which the backward pass reads.
        gathered_bytes: of a copy of a variable that is read otherwise than it is stored; more than
            is stored of it, where the backward pass does not read that copy.
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
            raise OptionError(f"memory is counted from 0. Got {shown}.")


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """Bytes on one device: ``kept`` until the step ends, ``transient`` while the operator runs."""

    kept: int
    transient: int = 0


MemoryModel = Callable[[Footprint], MemoryUse]


def paper_memory(footprint: Footprint) -> MemoryUse:
    """The paper's model: variables once, and every operator's output, kept for backward.

    Equation 1 (TensorOpt): m_p is ``variable_bytes``, m_t is ``output_bytes``. The paper's
    operators are layers, in which a bias is added in place: VGG16 at batch 256 takes 30 GB so
    (Table 1), and 44 GB with every sum counted apart. Gradients, kernels' workspace and the
    network's buffers are left out (the paper's footnote 2), so nothing is transient. In the paper's
    space a variable lies as its operator reads it; a copy for another reader, and one of a
    variable that is stored in pieces (not in the paper), counts.
    """
    kept = footprint.variable_bytes + footprint.gathered_bytes
    return MemoryUse(kept + footprint.output_bytes - footprint.added_bytes)


def execution_memory(footprint: Footprint) -> MemoryUse:
    """What running takes: variables, their gradients, and of tensors those that the backward pass
    reads, in each layout in which it does. Others are transient: most are gone when the next is
    made. A variable that is put together to be read counts so even where no gradient reads it, as
    a table of embeddings: it may be larger than all that is kept. (Small ones, as biases, do not.)

    The sum over a strategy bounds the bytes that are kept at any time, since a gradient comes when
    the tensors that it reads go; `tensoropt.cost.peak.estimated_peak` follows a step operator by
    operator.
    """
    kept = footprint.variable_bytes + footprint.kept_bytes
    kept += footprint.gradient_bytes + footprint.moved_bytes + footprint.gathered_bytes
    return MemoryUse(kept, footprint.output_bytes - footprint.kept_bytes)


_MODELS: dict[str, MemoryModel] = {"execution": execution_memory, "paper": paper_memory}


def memory_model(name: str) -> MemoryModel:
    """The model of a name.

    Raises:
        OptionError: if there is none.
    """
    if name not in _MODELS:
        raise OptionError(f"a memory model is one of {', '.join(_MODELS)}. Got {name!r}.")
    return _MODELS[name]
