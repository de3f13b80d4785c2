"""Settings of a job: arguments of `init`, or environment variables in their place."""

from __future__ import annotations

import os
from pathlib import Path

from collectives import Group
from tensoropt.elastic.rank_variables import (
    RESTARTS_VARIABLE,
    THREADS_VARIABLE,
    TRACE_VARIABLE,
)
from tensoropt.errors import OptionError
from tensoropt.execution.agreement.fed_values import CHECK_FEEDS_EVERY
from tensoropt.execution.runtime.replicas import CHECK_VARIABLE
from tensoropt.execution.world.mpi_world import Transport
from tensoropt.planner.options.values import is_count

__all__ = [
    "CHECK_FEEDS_VARIABLE",
    "DEVICES_VARIABLE",
    "RANK_SPEEDS_VARIABLE",
    "SAME_SETTINGS",
    "SAVE_BESIDE_VARIABLE",
    "TRANSPORT_VARIABLE",
    "check_intervals",
    "checked_transport",
    "demanded_threads",
    "device_count",
    "is_switched_on",
    "saves_beside",
    "setting_lines",
    "trace_folder",
]

DEVICES_VARIABLE = "TENSOROPT_DEVICES"
"""Environment variable: number of virtual ranks in the single-process world."""

RANK_SPEEDS_VARIABLE = "TENSOROPT_RANK_SPEEDS"
"""Environment variable: "equal" if ranks of this machine are taken as equal, not measured."""

CHECK_FEEDS_VARIABLE = "TENSOROPT_CHECK_FEEDS_EVERY"
"""Environment variable: interval of the runs in which ranks compare whole batches; 0 for never."""
TRANSPORT_VARIABLE = "TENSOROPT_TRANSPORT"
"""Environment variable: the library for collectives between processes, mpi or horovod."""

SAVE_BESIDE_VARIABLE = "TENSOROPT_SAVE_BESIDE"
"""Environment variable: 1 if saves return before their files are written."""

SAME_SETTINGS = (
    f"Pass init the same transport, or set {TRANSPORT_VARIABLE} alike, and {CHECK_VARIABLE} and "
    f"{CHECK_FEEDS_VARIABLE}, and save_beside or {SAVE_BESIDE_VARIABLE}, on every rank."
)
"""The remedy if ranks have different `setting_lines`."""

_TRANSPORTS: tuple[Transport, ...] = ("mpi", "horovod")
_CHECK_EVERY = 500  # steps between two comparisons of variables, by default


def device_count(group: Group, devices: int | None) -> int:
    """The number of devices of a job.

    Args:
        group: all ranks.
        devices: the argument of `init`; if it is None, the environment variable counts.

    Raises:
        OptionError: if the number is not valid, or contradicts the number of ranks.
    """
    wanted = devices
    if wanted is None:
        wanted = _number_from_environment(DEVICES_VARIABLE, "a number of devices")
    if wanted is not None and not is_count(wanted):
        raise OptionError(
            "a job has at least one device, and a whole number of devices. Got "
            f"devices={wanted!r}; leave it out for one device."
        )
    if group.size > 1 and wanted not in (None, group.size):
        raise OptionError(
            f"under MPI there is one device per rank. Got devices={wanted} with {group.size} "
            "ranks; leave devices out."
        )
    return int(group.size) if group.size > 1 else wanted or 1


def demanded_threads() -> int | None:
    """The number of a rank's threads that the environment demands; None if it demands none.

    Raises:
        OptionError: it is not a number from 1.
    """
    threads = _number_from_environment(THREADS_VARIABLE, "a number of threads")
    if threads == 0:
        raise OptionError(
            f"a rank computes with at least one thread. Got {THREADS_VARIABLE}=0; unset it."
        )
    return threads


def checked_transport(transport: str | None) -> Transport:
    """The transport that `init` or the environment variable names.

    Raises:
        OptionError: if there is no such transport.
    """
    wanted = transport or os.environ.get(TRANSPORT_VARIABLE) or _TRANSPORTS[0]
    checked = next((name for name in _TRANSPORTS if name == wanted), None)
    if checked is None:
        given = "transport" if transport else TRANSPORT_VARIABLE
        raise OptionError(
            f"a transport is one of {', '.join(_TRANSPORTS)}. Got {given}={wanted!r}; leave it out "
            f"for {_TRANSPORTS[0]}."
        )
    return checked


def check_intervals() -> tuple[int, int]:
    """The steps between two comparisons of variables, and the runs between two of whole batches.

    Raises:
        OptionError: if an environment variable is not a number.
    """
    every = _number_from_environment(CHECK_VARIABLE, "a number of steps")
    feeds_every = _number_from_environment(CHECK_FEEDS_VARIABLE, "a number of runs")
    return (
        _CHECK_EVERY if every is None else every,
        CHECK_FEEDS_EVERY if feeds_every is None else feeds_every,
    )


def saves_beside(argument: bool | None) -> bool:
    """Whether saves return before their files are written, by `init`'s argument or the environment.

    Raises:
        OptionError: if the environment variable is neither 0 nor 1.
    """
    rule = "is 1 if checkpoints are written beside the steps, else 0"
    return is_switched_on(argument, SAVE_BESIDE_VARIABLE, rule)


def setting_lines(
    transport: Transport, check_every: int, check_feeds_every: int, is_beside: bool
) -> list[str]:
    """The settings in which all ranks agree, a line each."""
    return [
        f"transport={transport!r}",
        f"{CHECK_VARIABLE}={check_every}",
        f"{CHECK_FEEDS_VARIABLE}={check_feeds_every}",
        f"save_beside={is_beside}",
    ]


def trace_folder() -> Path | None:
    """The folder of this start's traces; a job that was started again keeps those of before."""
    folder, before = os.environ.get(TRACE_VARIABLE), os.environ.get(RESTARTS_VARIABLE, "0")
    if not folder:
        return None
    return Path(folder) if before == "0" else Path(folder, f"start{int(before) + 1}")


def is_switched_on(argument: bool | None, variable: str, rule: str) -> bool:
    """Whether an argument, or else an environment variable, switches something on.

    Args:
        argument: the argument; None if it is not given.
        variable: name of the environment variable.
        rule: the rest of the error's first sentence after the variable's name.

    Raises:
        OptionError: if the environment variable is neither 0 nor 1.
    """
    if argument is not None:
        return argument
    text = os.environ.get(variable, "0")
    if text not in ("", "0", "1"):
        raise OptionError(f"{variable} {rule}. Got {text!r}; unset it.")
    return text == "1"


def _number_from_environment(variable: str, what: str) -> int | None:
    """The number in an environment variable; None if it is not set."""
    text = os.environ.get(variable)
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal()):
        raise OptionError(
            f"{variable} is {what}. Got {text!r}; set it to a number such as 4, or unset it."
        )
    return int(text)
