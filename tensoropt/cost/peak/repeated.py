"""The memory of microbatches that a dry run does not emit.

Once a stage holds all the microbatches that it may hold, it repeats itself: each further microbatch
takes and frees as much memory. But some tensors of all microbatches are in memory at once. This
module finds these among the emitted kernels.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tensoropt.cost.peak.device_program import Kernel, Source
from tensoropt.cost.peak.kernel_memory import same_memory
from tensoropt.tdl import operator_type

__all__ = ["repeated_outputs"]

_JOINS = ("AddN", "ConcatV2")
_FED = ("constant", "placeholder")


def repeated_outputs(
    kernels: Sequence[Kernel], names: Sequence[str], not_made: int
) -> dict[Source, int]:
    """Return the outputs that microbatches which are not emitted have in memory, too.

    Two kinds of tensors are in memory for all microbatches at once:

    - Results, which a kernel joins after the last microbatch. It reads those of the first in place
      of those that are not emitted. So they count from then on.
    - Fed values, constants, and what is computed from these without waiting for other microbatches.
      Those of the last microbatch stay until it reads them. So they count for the ones before it.

    Args:
        kernels: the kernels of a step.
        names: for each emitted microbatch a part of the names of its kernels.
        not_made: the number of microbatches that are not emitted.

    Returns:
        See `DeviceProgram.repeated`.
    """
    if not not_made:
        return {}
    repeated: dict[Source, int] = {}
    waits: list[bool] = []
    is_last: list[bool] = []
    for number, kernel in enumerate(kernels):
        sources = [source for source, _ in kernel.inputs]
        waits.append(
            any(name in kernel.name for name in names[:-1])
            or any(other > number or waits[other] for other in (*sources, *kernel.after))
        )
        is_last.append(names[-1] in kernel.name or any(is_last[source] for source in sources))
        is_fed = operator_type(kernel.type).role in _FED
        is_early = not waits[-1] and not _shares_memory(kernels, kernel)
        if is_last[-1] and (is_fed or is_early):
            repeated |= {(number, output): not_made for output in range(len(kernel.outputs))}
        elif kernel.type in _JOINS:
            reads = Counter(kernel.inputs)
            repeated |= {source: not_made for source in reads if reads[source] > not_made}
    return repeated


def _shares_memory(kernels: Sequence[Kernel], kernel: Kernel) -> bool:
    """Whether an output of a kernel shares an input's memory."""
    read = tuple(kernels[number].outputs[output] for number, output in kernel.inputs)
    return bool(same_memory(kernel, read))
