"""TCP connections between the ranks of a group on several machines.

Every rank listens, and publishes its addresses through the group. In each pair of ranks the lower
rank connects. It tries the addresses of the other rank in turn, since a machine may have addresses
that only it can reach, or that every machine has (bridges of containers). Both ends prove by random
tokens, which travel through the group, that they are the ranks that they claim to be.
"""

from __future__ import annotations

import ctypes
import hashlib
import ipaddress
import os
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence

from collectives.errors import NativeError
from collectives.group import Group

__all__ = ["INTERFACE_VARIABLE", "open_network", "published_addresses"]

INTERFACE_VARIABLE = "COLLECTIVES_INTERFACE"
"""Environment variable with the name of a network interface, or with a subnet such as 10.0.0.0/8.
Ranks publish its addresses only; by default they publish all addresses."""

_CONNECT_SECONDS = 5.0
"""Time for one address to answer. An address that nobody has may not answer at all."""
_ALL_SECONDS = 30.0
_PROOF_BYTES = hashlib.sha256().digest_size
_RANK_BYTES = 4


def published_addresses(lines: str, wanted: str) -> list[str]:
    """Return the addresses to publish, loopback addresses last.

    Args:
        lines: lines of an interface and an address.
        wanted: name of an interface, a subnet, or empty for all addresses.

    Raises:
        NativeError: if ``wanted`` names no interface with an address and no subnet of one.
    """
    pairs = [line.split() for line in lines.splitlines()]
    found = [address for name, address in pairs if not wanted or wanted in (name, address)]
    if not found:
        try:
            subnet = ipaddress.ip_network(wanted, strict=False)
        except ValueError:
            subnet = None
        found = [each for _, each in pairs if subnet and ipaddress.ip_address(each) in subnet]
    if not found:
        raise NativeError(
            f"{INTERFACE_VARIABLE} is the name of a network interface or a subnet of this machine. "
            f"Got {wanted!r}, where it has {', '.join(' '.join(pair) for pair in pairs)}."
        )
    return sorted(found, key=lambda address: ipaddress.ip_address(address).is_loopback)


def open_network(
    group: Group, addresses_of: Callable[..., None], opened: Callable[..., int], says: bool = True
) -> int | None:
    """Connect all members of a group, and return the number that C++ gives to the connections.

    Every member calls. Returns None on every member if one of them cannot connect.

    Args:
        group: the members, on several machines.
        addresses_of: ``collectives_addresses`` of a library.
        opened: the function of the library that takes the connections and returns the number.
        says: whether the first member prints the reason if there are no connections.
    """
    sockets: dict[int, socket.socket] = {}
    listener, addresses, problem = None, list[str](), ""
    try:
        addresses = _addresses(addresses_of)
        listener = _Listener(group)
    except (NativeError, OSError) as error:
        problem = str(error)
    own = None if listener is None else (addresses, listener.port, listener.token)
    offers = group.allgather_object(own)  # All members come here, also one that cannot listen.
    if listener is not None:
        try:
            if None not in offers:
                sockets = listener.connected(offers)
        except OSError as error:
            problem = str(error)
        listener.close()
    problem = next((each for each in group.allgather_object(problem) if each), "")
    if problem:
        for each in sockets.values():
            each.close()
        if says and group.rank == 0:
            sys.stderr.write(
                "collectives: ranks on several machines use MPI, and steps are slower than with "
                f"connections between the machines. Got {problem}\n"
            )
        return None
    files = [sockets[member].detach() if member in sockets else -1 for member in range(group.size)]
    peers = [
        f"rank {rank} on {host}".encode()
        for rank, host in zip(group.ranks, group.hosts, strict=True)
    ]
    return opened(
        *(group.rank, group.size),
        (ctypes.c_int * group.size)(*files),
        (ctypes.c_char_p * group.size)(*peers),
    )


def _addresses(addresses_of: Callable[..., None]) -> list[str]:
    lines = ctypes.create_string_buffer(1 << 16)
    addresses_of(lines, ctypes.c_int64(len(lines)))
    return published_addresses(lines.value.decode(), os.environ.get(INTERFACE_VARIABLE, ""))


class _Listener:
    """Accepts the connections of lower members, and connects to higher ones."""

    def __init__(self, group: Group) -> None:
        self._group = group
        self._me = group.rank
        self.token = secrets.token_hex(16)
        if socket.has_dualstack_ipv6():
            self._socket = socket.create_server(
                ("::", 0), family=socket.AF_INET6, backlog=group.size, dualstack_ipv6=True
            )
        else:
            self._socket = socket.create_server(("", 0), backlog=group.size)
        self.port: int = self._socket.getsockname()[1]
        self._accepted: dict[int, socket.socket] = {}

    def close(self) -> None:
        """Stop listening."""
        self._socket.close()

    def connected(self, offers: Sequence[tuple[list[str], int, str]]) -> dict[int, socket.socket]:
        """Return the sockets by member.

        Args:
            offers: addresses, port and token of each member.

        Raises:
            OSError: if a member cannot be reached, or does not connect in time.
        """
        deadline = time.monotonic() + _ALL_SECONDS
        tokens = [token for _, _, token in offers]
        accepting = threading.Thread(target=self._accept, args=(tokens, deadline), daemon=True)
        accepting.start()
        connected: dict[int, socket.socket] = {}
        try:
            for member in range(self._me + 1, self._group.size):
                addresses, port, _ = offers[member]
                connected[member] = self._connect(member, addresses, port, tokens)
        finally:
            accepting.join()
        missing = [member for member in range(self._me) if member not in self._accepted]
        if missing:
            raise OSError(f"no connection from {self._name(missing[0])} in {_ALL_SECONDS:.0f} s")
        return {**connected, **self._accepted}

    def _accept(self, tokens: Sequence[str], deadline: float) -> None:
        while len(self._accepted) < self._me and time.monotonic() < deadline:
            self._socket.settimeout(max(deadline - time.monotonic(), 0.01))
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return  # the deadline; `connected` names the members that are missing
            try:
                connection.settimeout(_CONNECT_SECONDS)
                member = int.from_bytes(_received(connection, _RANK_BYTES), "big")
                proof = _received(connection, _PROOF_BYTES)
                if member < self._me and proof == _proof(tokens, member, self._me):
                    connection.sendall(_proof(tokens, self._me, member))
                    self._accepted[member] = connection
                    continue
            except OSError:
                pass  # a stranger, who may come and go; members connect anew or are missing
            connection.close()

    def _connect(
        self, member: int, addresses: Sequence[str], port: int, tokens: Sequence[str]
    ) -> socket.socket:
        tried = []
        for address in addresses:
            try:
                connection = socket.create_connection((address, port), _CONNECT_SECONDS)
            except OSError as error:
                tried.append(f"{address}: {error}")
                continue
            try:
                connection.sendall(self._me.to_bytes(_RANK_BYTES, "big"))
                connection.sendall(_proof(tokens, self._me, member))
                if _received(connection, _PROOF_BYTES) == _proof(tokens, member, self._me):
                    return connection
                tried.append(f"{address}: another process answers")
            except OSError as error:
                tried.append(f"{address}: {error}")
            connection.close()
        raise OSError(
            f"no connection from {self._name(self._me)} to {self._name(member)} "
            f"({'; '.join(tried)}). {INTERFACE_VARIABLE} names the network interface to use."
        )

    def _name(self, member: int) -> str:
        return f"rank {self._group.ranks[member]} on {self._group.hosts[member]}"


def _proof(tokens: Sequence[str], sender: int, receiver: int) -> bytes:
    """Return the digest by which a member shows another one that it has the tokens of both."""
    words = (tokens[sender], tokens[receiver], str(sender), str(receiver))
    return hashlib.sha256(" ".join(words).encode()).digest()


def _received(source: socket.socket, size: int) -> bytes:
    """Return the next bytes of a socket.

    Raises:
        OSError: if there are fewer, or they do not come in time.
    """
    data = b""
    while len(data) < size:
        part = source.recv(size - len(data))
        if not part:
            raise OSError("the other process closes the connection")
        data += part
    return data
