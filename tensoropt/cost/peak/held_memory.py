"""What holds the memory of one device: at the peak of a step, and over the step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

from tensoropt.converters import Natural
from tensoropt.cost.peak.timeline import Buffer
from tensoropt.parallel.layout import Layout

if TYPE_CHECKING:  # a plan is read without it
    from tensoropt.cost.peak.estimated_forward import ForwardEvents

__all__ = ["HOLDERS", "HeldAt", "HeldMemory", "HeldTensor", "Holder", "held_memory"]

Holder = Literal["weights", "slots", "input", "activations", "gradients", "copies", "workspace"]
"""What holds memory: variables that are trained; other variables, such as an optimizer's slots;
placeholders and constants; outputs of operators; gradients; tensors in a second layout and windows
of neighbours' elements; and the bytes that kernels take while they run."""
HOLDERS: tuple[Holder, ...] = get_args(Holder)

_STAY = 3
"""The first holders, whose memory does not change over the step."""
_MOST_TENSORS, _MOST_TIMES = 40, 240
"""The most tensors and events that are recorded."""
_OF_GRADIENTS = frozenset({"gradient", "total"})


class HeldTensor(NamedTuple):
    """A tensor in memory at the peak: its operator, its holder and its bytes."""

    operator: str
    holder: Holder
    bytes: Natural


class HeldAt(NamedTuple):
    """The memory in use at one event: its number, its name, and the bytes of each of `HOLDERS`."""

    event: Natural
    at: str
    bytes: tuple[Natural, ...]


@dataclass(frozen=True, slots=True)
class HeldMemory:
    """The memory of a step that is followed operator by operator.

    Attributes:
        at: the event with the most memory: an operator, or "gradient of ...".
        bytes: the memory there, by holder in the order of `HOLDERS`.
        tensors: the largest tensors there, the largest first.
        step: the memory over the step. Each entry is the event with the most memory among its
            neighbours, so the peak is one of them.
        events: the number of all events.
    """

    at: str
    bytes: tuple[Natural, ...]
    tensors: tuple[HeldTensor, ...]
    step: tuple[HeldAt, ...]
    events: Natural


def held_memory(
    step: ForwardEvents, uses: Mapping[str, Holder], added: Mapping[Holder, int]
) -> HeldMemory:
    """Return what holds the memory of a step.

    Args:
        step: the followed step.
        uses: the holder of each variable, placeholder and constant, by name.
        added: bytes that are held over the whole step besides, as by other microbatches.
    """
    staying = Counter[Holder]()
    for name, size in step.resident.items():
        staying[uses[name]] += size
    stays = tuple(staying[holder] + added.get(holder, 0) for holder in HOLDERS[:_STAY])
    totals = [total for *_, total in step.timeline.states()]
    width = -(-len(totals) // _MOST_TIMES) or 1
    firsts = range(0, len(totals), width)
    chosen = {max(range(n, min(n + width, len(totals))), key=totals.__getitem__) for n in firsts}
    peak = max(chosen, key=lambda number: (totals[number], -number), default=None)
    over_step: list[HeldAt] = []
    tensors = [HeldTensor(name, uses[name], size) for name, size in step.resident.items()]
    for number, (event, alive, total) in enumerate(step.timeline.states()):
        if number not in chosen:
            continue
        moving = Counter[Holder]()
        for buffer, size in alive.items():
            moving[_holder(buffer)] += size
        moving["workspace"] += total - sum(moving.values())
        held = (*stays, *(moving[holder] + added.get(holder, 0) for holder in HOLDERS[_STAY:]))
        over_step.append(HeldAt(number, event.label, held))
        if number == peak:
            tensors += [HeldTensor(str(b[0]), _holder(b), size) for b, size in alive.items()]
    largest = sorted(tensors, key=lambda tensor: (-tensor.bytes, tensor.operator))
    at = next((each for each in over_step if each.event == peak), None)
    return HeldMemory(
        at.at if at else "",
        at.bytes if at else (*stays, *[0] * (len(HOLDERS) - _STAY)),
        tuple(tensor for tensor in largest[:_MOST_TENSORS] if tensor.bytes),
        tuple(over_step),
        len(totals),
    )


def _holder(buffer: Buffer) -> Holder:
    """Return what a buffer of a timeline is."""
    _, *rest = buffer
    if any(isinstance(part, str) and part in _OF_GRADIENTS for part in rest):
        return "gradients"
    if any(isinstance(part, Layout) or part in ("window", "written") for part in rest):
        return "copies"
    return "activations"
