"""``tensoropt doctor``: try what jobs need, and name the remedy for what does not work."""

from __future__ import annotations

from pathlib import Path

import click

from tensoropt.cli.command import Answer, Command, option
from tensoropt.cli.doctor.checks import findings
from tensoropt.cli.doctor.finding import DoctorAnswer, Finding
from tensoropt.elastic.hosts import hosts_of_job
from tensoropt.planner.options.values import count
from tensoropt.report.text_table import Report, table

__all__ = ["doctor"]

_RANKS = 2


@click.command(cls=Command, answer=DoctorAnswer)
@option(*("-np", "N", int, count, "ranks"), help=f"Number of ranks to start, {_RANKS} by default.")
@click.option(
    "--hosts",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="A file with a line `a:2` or `a slots=2` for each machine to try. By default the nodes of "
    "a job of Slurm, otherwise this machine.",
)
def doctor(ranks: int | None, hosts: Path | None) -> Answer:
    """Try what jobs need here, and name a remedy for what does not work.

    TensorFlow, GPUs, the compiler of the collectives, Horovod, ranks under mpirun, shared memory
    and other machines are tried one after another, each in a process of its own. The exit status is
    1 if one of them fails; a thing that is absent is not needed, or only makes jobs slower.
    """
    tried = tuple(findings(hosts_of_job(hosts, ranks or _RANKS), ranks or _RANKS))
    answer = DoctorAnswer(all(finding.state != "fails" for finding in tried), tried)
    return Answer(answer, (_table(tried), *_remedies(tried)), 0 if answer.works else 1)


def _table(tried: tuple[Finding, ...]) -> Report:
    rows = [[finding.state, finding.what, finding.found] for finding in tried]
    return table(["", "", "found"], rows, [False, False, False])


def _remedies(tried: tuple[Finding, ...]) -> list[str]:
    return [f"\n{finding.what}: {finding.remedy}" for finding in tried if finding.remedy]
