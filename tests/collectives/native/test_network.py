"""Addresses of connections between machines, and the end of a connection."""

from __future__ import annotations

import ctypes
import socket

import pytest
import tensorflow as tf

from collectives.errors import NativeError
from collectives.native.build import library
from collectives.native.network import published_addresses
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
