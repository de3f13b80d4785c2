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
from tensoropt.elastic.launcher import BINDINGS, Binding, Cores, MPIRun
from tensoropt.elastic.rank_variables import PLAN_VARIABLE, TRACE_VARIABLE
from tensoropt.elastic.state import StateFile
from tensoropt.elastic.supervisor import Limits, Supervisor
from tensoropt.errors import OptionError
from tensoropt.plan import Plan
from tensoropt.planner.options.values import count, is_count, is_number, name_of, rule

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
@option(
    *("--threads", "N", int, count),
    help="Threads of each rank that compute; by default the ranks of a machine share its cores.",
)
@option(
    *("--binding", "none|core|socket", str, name_of("a binding", BINDINGS)),
    help="Cores that a rank may use: all of its machine (none, the default), --threads of them "
    "(core), or those of one processor (socket).",
)
@click.option(
    "--trace",
    metavar="FOLDER",
    type=click.Path(path_type=Path),
    help="Write a timeline of some steps of each rank into this folder, rank0.json and so on; of "
    "further starts into start2 and so on within.",
)
@click.option(
    *("--plan", "plan_file"),
    metavar="PLAN.json",
    type=click.Path(path_type=Path),
    help="Run the plan of this file, from `tensoropt plan --output`, without a search.",
)
@click.option(
    *("--plan-ahead", "plans_ahead"),
    is_flag=True,
    help="After the first checkpoint, search plans for a start without one of the machines, by one "
    "process of the first rank's machine at idle priority. It takes memory there.",
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
    threads: int | None,
    binding: Binding | None,
    trace: Path | None,
    plan_file: Path | None,
    plans_ahead: bool,
    arguments: Sequence[str],
) -> None:
    """Run a script under mpirun, and start it again after a loss.

    If a rank or a machine is lost, the script is started again on the machines that answer, and
    goes on from its last checkpoint. A machine that comes back is taken in at the next checkpoint.
    The script's own arguments come after `--`.
    """
    check_is_script(script, "run")
    cores = Cores(threads, binding or "none")
    variables = {**_traced(trace), **_planned(plan_file, devices)}
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
    launcher = MPIRun(command, cores=cores, variables=variables)
    supervisor = Supervisor(launcher, known, limits, StateFile(state), plans_ahead=plans_ahead)
    ctx.exit(supervisor.run(command))


def _traced(folder: Path | None) -> dict[str, str]:
    """The variable of ranks that write traces.

    Raises:
        OptionError: the path is that of a file.
    """
    if folder is None:
        return {}
    if folder.exists() and not folder.is_dir():
        raise OptionError(
            f"traces are written into a folder, a file for each rank. Got --trace {str(folder)!r}, "
            "which is a file; give another path."
        )
    return {TRACE_VARIABLE: str(folder.absolute())}


def _planned(file: Path | None, devices: int) -> dict[str, str]:
    """The variable of ranks that run a plan file.

    Raises:
        PlanError: there is no such file, or it is no plan.
        OptionError: the plan is for another number of devices.
    """
    if file is None:
        return {}
    plan = Plan.load(file)
    if not plan.runs_on(devices):
        raise OptionError(
            "a plan runs on the number of devices it was made for. Got -np "
            f"{devices} with a plan for {plan.devices}; start it with -np {plan.devices}, or make "
            f"one with `tensoropt plan --devices {devices}`."
        )
    return {PLAN_VARIABLE: str(file.absolute())}
