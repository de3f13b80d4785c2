"""The reason for which a start of a job has ended, from its status and its output."""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass

__all__ = ["Ending", "ending_of"]

_PREEMPTED = 128 + signal.SIGTERM
_HOST = r"(?P<host>[^\s,;:.]+)"
# The signs of a rank or machine that is lost: of MPICH's launcher (a host, then a signal), of Open
# MPI's, of the ranks' watchdogs, and of a rank whose connection to another one broke.
_LOSSES = (
    rf"PID \d+ RUNNING AT {_HOST}.*\n=\s+EXIT CODE: \d+\n(?:=.*\n)*"
    r"YOUR APPLICATION TERMINATED WITH THE EXIT STRING: (?P<what>.* \(signal \d+\))",
    r"YOUR APPLICATION TERMINATED WITH THE EXIT STRING: (?P<what>.* \(signal \d+\))",
    rf"process rank \d+ with PID \d+ on node {_HOST}\S* exited on (?P<what>signal \d+)".replace(
        " ", r"\s+"
    ),
    rf"No rank on {_HOST}.* answers.*The job ends, by COLLECTIVES_\w+",
    r"(?P<what>rank \d+[^\n,]*, which does not answer).*The job ends, by COLLECTIVES_\w+",
    r"The job ends, by (?P<what>COLLECTIVES_\w+)",
    r"tensoropt: (?P<what>rank \d+ ends the job: TransportError)",
)
_BEFORE_INIT = "tensoropt: a rank ends the job before init"  # by a signal to itself
_SCRIPT = re.compile(r"^tensoropt: rank \d+ ends the job.*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Ending:
    """The end of a start.

    Attributes:
        status: the launcher's exit status, above 128 for a signal that ended it.
        reason: a few words for a line of output.
        is_lost: whether a rank or a machine was lost; else the script has ended.
        host: the host that the output names as the lost one; empty if it names none.
    """

    status: int
    reason: str
    is_lost: bool = False
    host: str = ""

    @property
    def is_done(self) -> bool:
        """Whether the script has ended without an error."""
        return self.status == 0


def ending_of(status: int, output: str) -> Ending:
    """The reason of an end.

    Args:
        status: the launcher's exit status, or the negative number of a signal that ended it.
        output: the end of the output of launcher and ranks.
    """
    if status == 0:
        return Ending(0, "the script has ended")
    if status < 0:
        reason = f"the launcher was ended by signal {-status}"
        return Ending(128 - status, reason, True, _silent_host(output))
    if _BEFORE_INIT in output:
        return Ending(status, "a rank failed before init")
    for sign in _LOSSES:
        found = re.search(sign, output)
        if found:
            parts = found.groupdict()
            host = parts.get("host") or ""
            what = " ".join((parts.get("what") or "no rank answers").split())
            return Ending(status, f"{what}{f' on {host}' if host else ''}", True, host)
    if status == _PREEMPTED:
        return Ending(status, "a rank got SIGTERM", True)
    lines = _SCRIPT.findall(output)
    if lines:
        return Ending(status, lines[0].removeprefix("tensoropt: ").rstrip("."))
    return Ending(status, f"exit status {status}")


def _silent_host(output: str) -> str:
    """The machine of which no rank answers, by the ranks' watchdogs."""
    found = re.search(rf"No rank on {_HOST}", output)
    return found["host"] if found else ""
