"""The memory in use over time: events that make and read buffers, in order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

__all__ = ["Buffer", "Event", "Timeline"]

Buffer = tuple[object, ...]
"""Identifies a buffer: the name of a tensor, and which copy of it."""


@dataclass(slots=True)
class Event:
    """One event: the buffers that it reads, those that it makes, and its temporary bytes.

    Attributes:
        label: its name.
        reads: buffers that it reads.
        makes: buffers that it makes, with their bytes.
        writes_over: whether it may write an output over a buffer that it is the last to read.
        temporary: bytes that it takes only while it runs.
    """

    label: str
    reads: tuple[Buffer, ...]
    makes: tuple[tuple[Buffer, int], ...]
    writes_over: bool = False
    temporary: int = 0


@dataclass(slots=True)
class Timeline:
    """Events in order, and buffers that share memory.

    Attributes:
        events: the events.
        shares: for each buffer without memory of its own, the buffer whose memory it shares.
        parts: bytes of buffers that are only a part of the memory they share.
    """

    events: list[Event] = field(default_factory=list)
    shares: dict[Buffer, Buffer] = field(default_factory=dict)
    parts: dict[Buffer, int] = field(default_factory=dict)

    def root(self, buffer: Buffer) -> Buffer:
        """Return the buffer whose memory a buffer shares, or itself."""
        while buffer in self.shares:
            buffer = self.shares[buffer]
        return buffer

    def _size(self, buffer: Buffer, alive: dict[Buffer, int]) -> int:
        """Return the bytes of a buffer, which may be a part of the memory it shares."""
        while buffer not in self.parts and buffer in self.shares:
            buffer = self.shares[buffer]
        return self.parts[buffer] if buffer in self.parts else alive.get(buffer, 0)

    def states(self) -> Iterator[tuple[Event, dict[Buffer, int], int]]:
        """Yield each event, the buffers in memory while it runs with their bytes, and all bytes.

        The bytes include the event's temporary ones. The buffers are valid until the next event.
        """
        last: dict[Buffer, int] = {}
        for number, event in enumerate(self.events):
            for buffer in (*event.reads, *(made for made, _ in event.makes)):
                last[self.root(buffer)] = number
        alive: dict[Buffer, int] = {}
        total = 0
        for number, event in enumerate(self.events):
            read = {self.root(buffer): buffer for buffer in event.reads}
            dying = [b for b in read if last[b] == number and b in alive]
            for buffer, size in event.makes:
                memory = size
                if event.writes_over:
                    same = next((b for b in dying if self._size(read[b], alive) == size), None)
                    if same is not None:
                        dying.remove(same)
                        memory = alive.pop(same)  # all memory of which the input is a part
                        total -= memory
                alive[self.root(buffer)] = memory
                total += memory
            yield event, alive, total + event.temporary
            made = [self.root(buffer) for buffer, _ in event.makes]
            for buffer in (*dying, *(b for b in made if last[b] == number)):
                total -= alive.pop(buffer, 0)

    def peak(self) -> tuple[int, str]:
        """Return the largest number of bytes in use at once, and the event where it is reached."""
        largest, where = 0, ""
        for event, _, total in self.states():
            if total > largest:
                largest, where = total, event.label
        return largest, where
