"""Messages of tensors between ranks of one machine, by operators in C++."""

from __future__ import annotations

import ctypes
import functools
import mmap
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from collectives.errors import NativeError
from collectives.group import Group
from collectives.native.build import library, operators
from collectives.native.transport import SWITCH, core_share, spin_seconds
from collectives.native.window import BYPASS_BELOW, shared_rooms
from collectives.watchdog import Wait, watchdog

__all__ = ["Mail", "mail_of"]

_SOURCES = [
    Path(__file__).parent / name
    for name in ("messages.cc", "communication.h", "copy.h", "mail.h", "window.h")
]


class Mail:
    """See `mail_of`, which makes them.

    Args:
        group: all ranks that have one.
        path: the library.
        memory: what this machine's ranks share.
        room: bytes of it for what each rank has sent.
        file: descriptor of that memory.

    Attributes:
        overlaps: whether the process computes while it waits for a message.
    """

    def __init__(self, group: Group, path: Path, memory: mmap.mmap, room: int, file: int) -> None:
        self._operators, self._library = _loaded(path)
        hosts = zip(group.ranks, group.hosts, strict=True)
        local = [rank for rank, host in hosts if host == group.host]
        self._group = group
        self._places = {rank: place for place, rank in enumerate(local)}
        self._made: list[Wait] = []
        self._memory = memory  # for as long as the process may use it
        self.overlaps = core_share() >= 2  # as of `NativeTransport`
        self._room = min(group.allgather_object(room))
        self._mail = self._library.collectives_mail_open(
            ctypes.addressof(ctypes.c_char.from_buffer(memory)),
            *(group.local_rank(), len(local), room, file),
            *(spin_seconds(), BYPASS_BELOW),
        )
        watchdog().add(self._running)

    @property
    def seconds(self) -> float:
        """What this process's messages have taken so far, waiting for others included."""
        return float(self._library.collectives_mail_seconds())

    def has_room(self, sizes: Sequence[int]) -> bool:
        """Whether messages of so many bytes can be on their way from one rank at once; the same
        answer on every rank."""
        taken = self._library.collectives_mail_taken
        return bool(2 * sum(taken(size) for size in sizes) <= self._room)

    def reaches(self, member: int) -> bool:
        """Whether a member of the group, by its position, is on this machine."""
        return self._group.ranks[member] in self._places

    def send(self, tensor: tf.Tensor, member: int, tag: int, record: str) -> tf.Tensor:
        """Send a tensor to a member, without waiting for it; something that is there after that.

        Args:
            tensor: of numbers.
            member: position of the receiver, which it `reaches`.
            tag: tells messages apart that are received in another order than they are sent in.
            record: what this is.
        """
        return self._operators.collectives_send(
            value=tensor, name="send", **self._attributes(member, tag, record, None)
        )

    def receive(
        self, shape: Sequence[int], dtype: tf.DType, member: int, tag: int, record: str
    ) -> tf.Tensor:
        """Wait for the first message of a member with a tag that is not received yet."""
        own = self._attributes(member, tag, record, self._group.ranks[member])
        return self._operators.collectives_receive(T=dtype, shape=shape, name="receive", **own)

    def _attributes(self, member: int, tag: int, record: str, sender: int | None) -> dict[str, Any]:
        ranks = self._group.ranks
        self._made.append(Wait(record, (ranks[member], ranks[self._group.rank]), 0.0, sender))
        return {
            "member": self._places[ranks[member]],
            "tag": tag,
            "mail": self._mail,
            "call": len(self._made) - 1,
            "overlaps": self.overlaps,
        }

    def _running(self) -> Wait | None:
        since = ctypes.c_double()
        call = self._library.collectives_mail_running(self._mail, ctypes.byref(since))
        return None if call < 0 else self._made[call]._replace(since=since.value)


_mails: dict[tuple[int, ...], Mail | None] = {}


def mail_of(group: Group) -> Mail | None:
    """The mail of these ranks, or None where one of them cannot have it.

    Every member calls, at the same point. The first call of a process may compile, for some
    seconds. Where there is none messages go through MPI, only slower, and nothing is said.
    """
    if group.size == 1:
        return None
    if group.ranks not in _mails:
        _mails[group.ranks] = _agreed(group)
    return _mails[group.ranks]


def _agreed(group: Group) -> Mail | None:
    path = None
    if os.environ.get(SWITCH, "") != "0":
        try:
            path = library("messages", _SOURCES)
            _loaded(path)
        except NativeError:
            path = None
    if not all(group.allgather_object(path is not None)):
        return None
    assert path is not None, "all have it"
    start = _loaded(path)[1].collectives_mail_start(group.local_size())
    shared = shared_rooms(group, start)
    if shared.memory is None:
        return None
    return Mail(group, path, shared.memory, shared.part_bytes, shared.file)


@functools.cache
def _loaded(path: Path) -> tuple[Any, ctypes.CDLL]:
    """The operators' Python functions, and the library's functions.

    Raises:
        NativeError: if it cannot be loaded.
    """
    made = operators(path)
    tf.no_gradient("CollectivesSend")
    tf.no_gradient("CollectivesReceive")
    found = ctypes.CDLL(str(path))
    found.collectives_mail_open.argtypes = [
        *(ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int),
        *(ctypes.c_double, ctypes.c_double),
    ]
    for name in ("start", "taken", "running"):
        getattr(found, f"collectives_mail_{name}").restype = ctypes.c_int64
    found.collectives_mail_taken.argtypes = [ctypes.c_int64]
    found.collectives_mail_seconds.restype = ctypes.c_double
    return made, found
