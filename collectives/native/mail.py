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
from collectives.group import Group, job_facts
from collectives.native.build import library, operators
from collectives.native.transport import SWITCH, spin_seconds
from collectives.native.window import BYPASS_BELOW, shared_rooms
from collectives.watchdog import Wait, watchdog

__all__ = ["Mail", "mail_of"]

_SOURCES = [
    Path(__file__).parent / name
    for name in ("messages.cc", "communication.h", "copy.h", "mail.h", "window.h")
]


class Mail:
    """Messages of one group through shared memory. `mail_of` makes instances.

    Args:
        group: all ranks that have a `Mail`.
        path: file of the library.
        memory: the memory that the ranks of this machine share.
        room: bytes of the memory for the messages that one rank has sent.
        file: file descriptor of the memory.

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
        self.overlaps = job_facts().overlaps
        self._room = min(group.allgather_object(room))
        self._mail = self._library.collectives_mail_open(
            ctypes.addressof(ctypes.c_char.from_buffer(memory)),
            *(group.local_rank(), len(local), room, file),
            *(spin_seconds(group), BYPASS_BELOW),
        )
        watchdog().add(self._running)

    @property
    def seconds(self) -> float:
        """Time of this process's messages so far, including the time of waiting for other ranks."""
        return float(self._library.collectives_mail_seconds())

    def has_room(self, sizes: Sequence[int]) -> bool:
        """Whether the shared memory holds messages of these sizes from one rank at once.

        Every rank gets the same answer."""
        taken = self._library.collectives_mail_taken
        return bool(2 * sum(taken(size) for size in sizes) <= self._room)

    def reaches(self, member: int) -> bool:
        """Whether a member of the group, by its position, is on this machine."""
        return self._group.ranks[member] in self._places

    def send(self, tensor: tf.Tensor, member: int, tag: int, record: str) -> tf.Tensor:
        """Send a tensor to a member without waiting for the receiver.

        Args:
            tensor: the tensor, of a numeric type.
            member: position of the receiver, for which `reaches` is true.
            tag: identifies the message, where messages are received in another order than sent.
            record: description of the message, for reports of the watchdog.

        Returns:
            A tensor that is available once the message is sent.
        """
        return self._operators.collectives_send(
            value=tensor, name="send", **self._attributes(member, tag, record, None)
        )

    def receive(
        self, shape: Sequence[int], dtype: tf.DType, member: int, tag: int, record: str
    ) -> tf.Tensor:
        """Wait for a member's first unreceived message with this tag, and return its tensor."""
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
    """Return the mail of a group, or None if one of its ranks cannot have it.

    Every member calls, at the same point. The first call of a process may compile for some seconds.
    Without mail, messages go through MPI, which is slower; no note is printed.
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
