"""How much memory an operator takes on a device: named models of equation 1's m = m_p + m_t.

A model is a function from an operator's footprint, plain numbers of one device, to its memory.
What is kept adds up over a strategy; of what is transient only the largest counts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tensoropt.errors import OptionError

__all__ = ["Footprint", "MemoryModel", "MemoryUse", "memory_model", "paper_memory"]


@dataclass(frozen=True, slots=True)
class Footprint:
    """What one device holds of one operator under one configuration.

    Attributes:
        variable_bytes: of the variable that the operator is; 0 for other operators.
        output_bytes: of the outputs that it computes; 0 for variables, whose output is theirs.
    """

    variable_bytes: int = 0
    output_bytes: int = 0

    def __post_init__(self) -> None:
        if min(self.variable_bytes, self.output_bytes) < 0:
            raise OptionError(
                f"memory is counted from 0. Got variable_bytes={self.variable_bytes}, "
                f"output_bytes={self.output_bytes}."
            )


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """Bytes on one device: ``kept`` until the step ends, ``transient`` while the operator runs."""

    kept: int
    transient: int = 0


MemoryModel = Callable[[Footprint], MemoryUse]


def paper_memory(footprint: Footprint) -> MemoryUse:
    """The paper's model: variables once, and every operator's output, kept for backward.

    Equation 1 (TensorOpt): m_p is ``variable_bytes``, m_t is ``output_bytes``. Kernels' workspace
    and the network's buffers are left out (the paper's footnote 2), so nothing is transient.
    """
    return MemoryUse(footprint.variable_bytes + footprint.output_bytes)


_MODELS: dict[str, MemoryModel] = {"paper": paper_memory}


def memory_model(name: str) -> MemoryModel:
    """The model of a name.

    Raises:
        OptionError: if there is none.
    """
    if name not in _MODELS:
        raise OptionError(f"a memory model is one of {', '.join(_MODELS)}. Got {name!r}.")
    return _MODELS[name]
