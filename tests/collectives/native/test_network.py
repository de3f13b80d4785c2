"""Addresses of connections between machines, and the end of a connection."""

from __future__ import annotations

import ctypes
import socket
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest
import tensorflow as tf

from collectives.errors import NativeError
from collectives.native import network
from collectives.native.build import library
from collectives.native.network import open_network, published_addresses
from collectives.native.transport_library import SOURCES, loaded

LINES = "lo 127.0.0.1\neth0 192.0.2.2\neth1 10.1.2.3\neth0 fd00::2\n"


@pytest.mark.parametrize(
    ("wanted", "addresses"),
    [
        ("", ["192.0.2.2", "10.1.2.3", "fd00::2", "127.0.0.1"]),
        ("eth0", ["192.0.2.2", "fd00::2"]),
        ("10.0.0.0/8", ["10.1.2.3"]),
        ("fd00::/8", ["fd00::2"]),
        ("lo", ["127.0.0.1"]),
    ],
)
def test_an_interface_or_a_subnet_chooses_addresses(wanted: str, addresses: list[str]) -> None:
    assert published_addresses(LINES, wanted) == addresses


@pytest.mark.parametrize("wanted", ["eth2", "172.16.0.0/12"])
def test_an_interface_without_addresses_is_an_error(wanted: str) -> None:
    with pytest.raises(NativeError, match=f"Got '{wanted}', where it has lo 127.0.0.1"):
        published_addresses(LINES, wanted)


class Member:
    """One of two ranks, which are threads: the part of a group that `open_network` uses."""

    size, ranks, hosts = 2, (0, 1), ("first", "second")

    def __init__(self, rank: int, said: dict[int, Any], barrier: Barrier) -> None:
        self.rank, self._said, self._barrier = rank, said, barrier

    def allgather_object(self, value: Any) -> list[Any]:
        self._said[self.rank] = value
        self._barrier.wait(10)
        everyone = [self._said[rank] for rank in self.ranks]
        self._barrier.wait(10)
        return everyone


def networks() -> list[int | None]:
    """The number of the network of both ranks, over the loopback interface."""

    def addresses_of(lines: Any, _: object) -> None:
        lines.value = b"lo 127.0.0.1\n"

    def opened(rank: int, size: int, files: Any, peers: Any) -> int:
        del peers
        socket.close(files[(rank + 1) % size])
        return 5

    said, barrier = dict[int, Any](), Barrier(2)
    members: list[Any] = [Member(rank, said, barrier) for rank in Member.ranks]
    with ThreadPoolExecutor(2) as threads:
        return list(threads.map(lambda member: open_network(member, addresses_of, opened), members))


def test_a_rank_that_cannot_listen_leaves_no_rank_waiting(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert networks() == [5, 5]
    listener = network._Listener

    def of(group: Any) -> Any:
        if group.rank == 1:
            raise OSError(24, "Too many open files")
        return listener(group)

    monkeypatch.setattr(network, "_Listener", of)
    assert networks() == [None, None]
    assert "use MPI" in capsys.readouterr().err


def test_the_end_of_a_connection_names_rank_and_host() -> None:
    operators, functions = loaded(library("collectives", SOURCES))
    ours, theirs = socket.socketpair()
    theirs.close()
    files = (ctypes.c_int * 2)(-1, ours.detach())
    peers = (ctypes.c_char_p * 2)(b"rank 0 on first", b"rank 1 on second")
    network = functions.collectives_network_open(0, 2, files, peers)
    call = {"window": -1, "network": network, "call": 0, "overlaps": False}
    started = operators.collectives_allreduce(
        values=[tf.ones([5])], reducer="sum", members=[0, 1], place=0, **call
    )
    with pytest.raises(tf.errors.AbortedError, match=r"Got an end of the .* rank 1 on second"):
        operators.collectives_wait(started=started, network=network, call=0)


def test_sums_of_windows_of_rows_without_elements_are_empty() -> None:
    operators, functions = loaded(library("collectives", SOURCES))
    files, peers = (ctypes.c_int * 2)(-1, -1), (ctypes.c_char_p * 2)(b"", b"")
    network = functions.collectives_network_open(0, 2, files, peers)
    call = {"window": -1, "network": network, "call": 0, "overlaps": False}
    started = operators.collectives_move(
        value=tf.zeros([5, 0]),
        kind="exchange_sum",
        **{"members": [0, 1], "place": 0, "rows": 5, "most_rows": 1, "extent": 4},
        **{"sent": [0, 4, 4, 5], "received": [0, 4, 3, 4]},
        **call,
    )
    (result,) = operators.collectives_wait(started=[started], network=network, call=0)
    assert result.shape == [4, 0]
