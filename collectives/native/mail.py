"""Messages of tensors between ranks, by operators in C++: in memory, or over connections."""

from __future__ import annotations

import ctypes
import functools
import mmap
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from collectives.errors import NativeError
from collectives.group import Group, job_facts
from collectives.limits import usable_memory_bytes
from collectives.native.build import library, operators
from collectives.native.network import open_network
from collectives.native.transport import SWITCH, spin_seconds
from collectives.native.window import BYPASS_BELOW, shared_memory
from collectives.watchdog import Wait, watchdog

__all__ = ["Mail", "mail_of"]

_SOURCES = [
    Path(__file__).parent / name
    for name in (
        *("messages.cc", "communication.h", "copy.h", "mail.h", "window.h"),
        *("connections.h", "post.h"),
    )
]
_SHARE = 8  # all rooms of a machine together take this part of its memory
_PAGE = 4096
_AHEAD = 2  # a room holds the messages of two runs, so a sender may begin the next run


class Mail:
    """Messages of one group. `mail_of` makes instances.

    Args:
        group: all ranks that have a `Mail`.
        path: file of the library.
        memory: the memory that the ranks of this machine share.
        room: bytes of the memory for the messages that one rank has sent.
        file: file descriptor of the memory.
        post: number of the connections to ranks of other machines; None if there are none.

    Attributes:
        overlaps: whether the process computes while it waits for a message.
    """

    def __init__(
        self,
        group: Group,
        path: Path,
        memory: mmap.mmap,
        room: int,
        file: int,
        post: int | None = None,
    ) -> None:
        self._operators, self._library = _loaded(path)
        self._post = post
        hosts = zip(group.ranks, group.hosts, strict=True)
        local = [rank for rank, host in hosts if host == group.host]
        self._group = group
        self._places = {rank: place for place, rank in enumerate(local)}
        self._made: list[Wait] = []
        self._memory = memory  # for as long as the process may use it
        self.overlaps = job_facts().overlaps
        self._room = min(group.allgather_object(room))
        self._rooms: dict[int, Counter[int]] = {}  # by sender, the parts of each size
        self._mail = self._library.collectives_mail_open(
            ctypes.addressof(ctypes.c_char.from_buffer(memory)),
            *(group.local_rank(), len(local), room, file),
            *(spin_seconds(group), BYPASS_BELOW),
        )
        watchdog().add(self._running)
        if post is not None:
            watchdog().add(self._waiting_for_post)

    @property
    def seconds(self) -> float:
        """Time of this process's messages so far, including the time of waiting for other ranks."""
        return float(self._library.collectives_mail_seconds())

    def admits(self, messages: Iterable[tuple[int, int, int]]) -> bool:
        """Count the messages of a program that is going to run, if the rooms hold them.

        The messages of all programs before it stay counted. Every member calls with the same
        messages, and gets the same answer.

        Args:
            messages: for each message of one run the positions of sender and receiver in the
                group, and its bytes.
        """
        hosts = self._group.hosts
        sent: dict[int, Counter[int]] = {}
        for sender, receiver, size in messages:
            if hosts[sender] == hosts[receiver]:
                taken = self._library.collectives_mail_taken(size)
                sent.setdefault(sender, Counter())[taken] += 1
        rooms = {sender: self._rooms.get(sender, Counter()) | sent[sender] for sender in sent}
        if any(_AHEAD * _bytes_of(parts) > self._room for parts in rooms.values()):
            return False
        self._rooms |= rooms
        for size, parts in rooms.get(self._group.rank, Counter()).items():
            self._library.collectives_mail_allow(self._mail, size, _AHEAD * parts)
        return True

    def reaches(self, member: int) -> bool:
        """Whether messages can go to a member, given by its position in the group.

        They go through memory on this machine, and over a connection to another one.
        """
        return self._post is not None or self._is_local(member)

    def _is_local(self, member: int) -> bool:
        return self._group.ranks[member] in self._places

    def send(self, tensor: tf.Tensor, member: int, tag: int, record: str) -> tf.Tensor:
        """Send a tensor to a member. It waits only until messages of earlier runs are received.

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
        is_local = self._is_local(member)
        return {
            "member": self._places[ranks[member]] if is_local else member,
            "post": -1 if is_local else self._post,
            "tag": tag,
            "mail": self._mail,
            "call": len(self._made) - 1,
            "overlaps": self.overlaps,
        }

    def _running(self) -> Wait | None:
        since = ctypes.c_double()
        call = self._library.collectives_mail_running(self._mail, ctypes.byref(since))
        return None if call < 0 else self._made[call]._replace(since=since.value)

    def _waiting_for_post(self) -> Wait | None:
        since = ctypes.c_double()
        call = self._library.collectives_post_waiting(self._post, ctypes.byref(since))
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
    ranks = group.local_size()
    start = _loaded(path)[1].collectives_mail_start(ranks)
    shared = shared_memory(group, start + ranks * _room_bytes(ranks), start)
    if shared.memory is None:
        return None
    room = (len(shared.memory) - start) // ranks  # of the first rank of the machine
    post = None
    if len(set(group.hosts)) > 1:
        functions = _loaded(path)[1]
        opened = functions.collectives_post_open
        post = open_network(group, functions.collectives_addresses, opened, says=False)
    return Mail(group, path, shared.memory, room, shared.file, post)


def _bytes_of(parts: Mapping[int, int]) -> int:
    return sum(size * number for size, number in parts.items())


def _room_bytes(ranks: int) -> int:
    """Return the bytes of a room. Its pages are reserved when messages need them."""
    return usable_memory_bytes() // _SHARE // ranks // _PAGE * _PAGE


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
    for name in ("mail_start", "mail_taken", "mail_running", "post_waiting"):
        getattr(found, f"collectives_{name}").restype = ctypes.c_int64
    found.collectives_mail_taken.argtypes = [ctypes.c_int64]
    found.collectives_mail_allow.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    found.collectives_mail_seconds.restype = ctypes.c_double
    return made, found
