"""Processes in namespaces, seen from outside by /proc."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Process", "below", "enter", "processes_of"]

_ALL = ("--net", "--uts", "--mount", "--ipc", "--pid")


@dataclass(frozen=True, slots=True)
class Process:
    """A process of a machine.

    Attributes:
        pid: its number outside the machine.
        command: its command line.
    """

    pid: int
    command: str


def enter(init: int, has_users: bool, command: Sequence[str]) -> list[str]:
    """The command that runs a command in all namespaces of a process.

    Args:
        init: the process, by its number where the command runs.
        has_users: whether the process has a namespace of users, too.
        command: the command.
    """
    users = ["--user", "--preserve-credentials"] if has_users else []
    return ["nsenter", "--target", str(init), *users, *_ALL, "--", *command]


def processes_of(init: int) -> list[Process]:
    """The processes that share the process numbers of a machine's first process, without this one
    and without those that have ended."""
    space = _space(init)
    found = [pid for pid in _numbers() if pid != init and space and _space(pid) == space]
    return [Process(pid, _command(pid)) for pid in found if _state_and_parent(pid)[0] not in "ZX"]


def below(ancestor: int) -> list[int]:
    """The processes that a process started, and those started by them: the nearest first."""
    parents = {pid: _state_and_parent(pid)[1] for pid in _numbers()}
    found = [ancestor]
    for pid in found:  # it grows
        found += [child for child, parent in parents.items() if parent == pid]
    return found[1:]


def _numbers() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _space(pid: int) -> str:
    """The namespace of process numbers that a process is in; empty if it has ended."""
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")
    except OSError:
        return ""


def _state_and_parent(pid: int) -> tuple[str, int]:
    """The state and the parent of a process; X and 0 if it has ended."""
    try:
        # "pid (name) state parent ...", where the name may itself hold blanks and brackets.
        state, parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:2]
    except OSError:
        return "X", 0
    return state, int(parent)


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").replace("\0", " ")
    except OSError:
        return ""
