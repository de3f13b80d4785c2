"""Whether this system lets tests make machines."""

from __future__ import annotations

import functools
import shutil

from tests.machines.links import Link
from tests.machines.machines import MachinesError, machines

__all__ = ["why_not"]

_COMMANDS = ("bash", "unshare", "nsenter", "mount", "taskset", "ip", "tc")


@functools.cache
def why_not() -> str:
    """Why this system makes no machines, in a line; empty if it does, which is tried.

    Delays and loss need ``/dev/net/tun``, too.
    """
    missing = [command for command in _COMMANDS if shutil.which(command) is None]
    if missing:
        return f"there is no command {', '.join(missing)} (packages util-linux, iproute2)"
    try:
        with machines(1, Link(bits_per_second=1e9)):
            return ""
    except MachinesError as error:
        return " ".join(str(error).split())
