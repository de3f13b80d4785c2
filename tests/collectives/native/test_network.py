"""The addresses that a rank publishes for connections between machines."""

from __future__ import annotations

import pytest

from collectives.errors import NativeError
from collectives.native.network import published_addresses

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
