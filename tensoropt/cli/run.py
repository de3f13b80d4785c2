"""``tensoropt run``: run a script under mpirun, and start it again after a loss."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import click

from tensoropt.cli.command import ScriptCommand, option
from tensoropt.cli.script_dry_run import check_is_script
from tensoropt.elastic.hosts import hosts_of_job
from tensoropt.elastic.launcher import MPIRun
from tensoropt.elastic.state import StateFile
from tensoropt.elastic.supervisor import Limits, Supervisor
from tensoropt.errors import OptionError
from tensoropt.planner.options.values import count, is_count, is_number, rule

__all__ = ["INTERPRETER", "run"]

INTERPRETER = [sys.executable]
"""The command before a script, for each rank."""

_RESTARTS, _WAIT_SECONDS = 3, 600.0
_from_0 = rule("takes whole numbers from 0", lambda value: is_count(value, 0))
_seconds = rule("is a number of seconds from 0", lambda value: is_number(value) and value >= 0)


@click.command(cls=ScriptCommand)
@click.argument("script", metavar="SCRIPT", type=click.Path(path_type=Path))
@option(
    *("-np", "N", int, count, "devices"), required=True, help="Most ranks, one for each device."
)
@click.option(
    "--hosts",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="A file with a line `a:2` or `a slots=2` for each machine and its most ranks, read again "
    "before each start; hosts beyond -np are spares. By default the nodes of a job of Slurm, "
    "otherwise this machine.",
)
@option(
    *("--min-devices", "N", int, count, "least_devices"),
    help="Fewest ranks to start with, 1 by default.",
)
@option(
    *("--max-restarts", "N", int, _from_0, "restarts"),
    help=f"Most restarts in a row without a new checkpoint, {_RESTARTS} by default.",
)
@option(
    *("--wait", "SECONDS", float, _seconds, "wait_seconds"),
    help=f"Time to wait for machines while fewer than --min-devices answer, {_WAIT_SECONDS:g} by "
    "default.",
)
@click.option(
    "--state",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="A file that keeps the counts of starts for a job that a batch system starts again.",
)
@click.pass_context
def run(
    ctx: click.Context,
    /,
    script: Path,
    devices: int,
    hosts: Path | None,
    least_devices: int | None,
    restarts: int | None,
    wait_seconds: float | None,
    state: Path | None,
    arguments: Sequence[str],
) -> None:
    """Run a script under mpirun, and start it again after a loss.

    If a rank or a machine is lost, the script is started again on the machines that answer, and
    goes on from its last checkpoint. A machine that comes back is taken in at the next checkpoint.
    The script's own arguments come after `--`.
    """
    check_is_script(script, "run")
    limits = Limits(
        devices,
        1 if least_devices is None else least_devices,
        _RESTARTS if restarts is None else restarts,
        _WAIT_SECONDS if wait_seconds is None else wait_seconds,
    )
    if limits.least_devices > devices:
        raise OptionError(
            f"--min-devices is at most -np. Got {least_devices} and {devices}; lower one of them."
        )
    command = (*INTERPRETER, str(script), *arguments)
    known = partial(hosts_of_job, hosts, devices)
    known()  # an error in the file comes before anything is started
    supervisor = Supervisor(MPIRun(command), known, limits, StateFile(state))
    ctx.exit(supervisor.run(command))
