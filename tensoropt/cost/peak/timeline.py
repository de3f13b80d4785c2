"""What is in memory when: events that make and read buffers, one after another."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["Buffer", "Event", "Timeline"]

Buffer = tuple[object, ...]
"""What stands for one: a tensor's name, and which copy of it."""


@dataclass(slots=True)
class Event:
    """One thing that runs: what it reads, what it makes, and what it needs meanwhile."""

    label: str
    reads: tuple[Buffer, ...]
    makes: tuple[tuple[Buffer, int], ...]
    writes_over: bool = False
    meanwhile: int = 0


@dataclass(slots=True)
class Timeline:
    """Events in order, and buffers that share memory.

    Attributes:
        events: as they run.
        shares: by buffer, the one in whose memory it lies.
        parts: in bytes, of those that are a part of it only.
    """

    events: list[Event] = field(default_factory=list)
    shares: dict[Buffer, Buffer] = field(default_factory=dict)
    parts: dict[Buffer, int] = field(default_factory=dict)

    def root(self, buffer: Buffer) -> Buffer:
        while buffer in self.shares:
            buffer = self.shares[buffer]
        return buffer

    def _size(self, buffer: Buffer, alive: dict[Buffer, int]) -> int:
        """Of what is read of a buffer's memory."""
        while buffer not in self.parts and buffer in self.shares:
            buffer = self.shares[buffer]
        return self.parts[buffer] if buffer in self.parts else alive.get(buffer, 0)

    def peak(self) -> tuple[int, str]:
        """The most bytes alive at once, and where."""
        last: dict[Buffer, int] = {}
        for number, event in enumerate(self.events):
            for buffer in (*event.reads, *(made for made, _ in event.makes)):
                last[self.root(buffer)] = number
        alive: dict[Buffer, int] = {}
        total = most = 0
        where = ""
        for number, event in enumerate(self.events):
            read = {self.root(buffer): buffer for buffer in event.reads}
            dying = [b for b in read if last[b] == number and b in alive]
            for buffer, size in event.makes:
                taken = size
                if event.writes_over:
                    same = next((b for b in dying if self._size(read[b], alive) == size), None)
                    if same is not None:
                        dying.remove(same)
                        taken = alive.pop(same)  # all of what its part lies in
                        total -= taken
                alive[self.root(buffer)] = taken
                total += taken
            if total + event.meanwhile > most:
                most, where = total + event.meanwhile, event.label
            made = [self.root(buffer) for buffer, _ in event.makes]
            for buffer in (*dying, *(b for b in made if last[b] == number)):
                total -= alive.pop(buffer, 0)
        return most, where
