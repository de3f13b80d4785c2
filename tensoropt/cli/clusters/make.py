"""``tensoropt clusters make``: a cluster of this machine, or from questions and answers."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from collectives.limits import usable_memory_bytes
from collectives.transport.launch import available_cores
from tensoropt.cli.command import Answer, Command, check_folder
from tensoropt.cost.cluster import Cluster, Device, Level, load_cluster
from tensoropt.errors import OptionError
from tensoropt.json_files import write_json
from tensoropt.planner.options.values import count, is_number, memory, rule, value_of
from tensoropt.report.cluster_links import links_line

__all__ = ["make"]

_MACHINE_LATENCY_SECONDS, _DEVICE_LATENCY_SECONDS = 1e-5, 4e-6
_EFFICIENCY = (("contraction", 0.7), ("default", 0.5), ("elementwise", 0.5))
_name = rule("is a name of at least one character", bool)
_rate = rule(
    "is a number from 1e-9 to 1e9", lambda value: is_number(value) and 1e-9 <= value <= 1e9
)
_ASSUMED = (
    "latencies, overheads and efficiencies: assumed, as in 2x8-v100; change them in the file where "
    "you know better, or measure with `tensoropt profile`"
)


@dataclass(frozen=True, slots=True)
class _Question:
    """A question about a cluster, which an option answers beforehand.

    Attributes:
        name: name of the answer.
        flag, metavar: the option.
        text: the question.
        default: the answer if the user types nothing.
        parse, check: see `tensoropt.planner.options.values`.
    """

    name: str
    flag: str
    metavar: str
    text: str
    default: str
    parse: Callable[[str], Any]
    check: Callable[[str, Any], Any]

    def answer(self, given: str | None) -> Any:
        """Return the option's value, or the answer that the user types if there is no option.

        Raises:
            OptionError: if the option's value breaks a rule, or there is no terminal to ask on.
        """
        if given is not None:
            return self.check(self.flag, value_of(given, self.parse))
        if not sys.stdin.isatty():
            raise OptionError(
                f"a question is asked on a terminal. Got none, and no {self.flag}; add "
                f"{self.flag} {self.default}, or take this machine by --this-machine."
            )
        while True:
            text = click.prompt(self.text, default=self.default, err=True)
            try:
                return self.check(self.flag, value_of(text, self.parse))
            except OptionError as error:
                click.echo(f"{error}", err=True)


_QUESTIONS = (
    _Question("machines", "--machines", "N", "Number of machines", "1", int, count),
    _Question("devices", "--devices", "N", "Devices in a machine", "8", int, count),
    _Question("device", "--device", "NAME", "Name of a device", "GPU", str, _name),
    _Question("memory", "--memory", "AMOUNT", "Memory of a device", "80GiB", memory, count),
    _Question("tflops", "--tflops", "N", "Peak float32 TFLOP/s of a device", "60", float, _rate),
    _Question(
        *("memory_speed", "--memory-speed", "GB/S", "GB/s between a device and its memory", "3000"),
        *(float, _rate),
    ),
    _Question(
        *("link", "--link", "GB/S", "GB/s between two devices of a machine", "450"),
        *(float, _rate),
    ),
    _Question(
        *("network", "--network", "GB/S", "GB/s between two machines", "50"),
        *(float, _rate),
    ),
)


def _options(function: Callable[..., Any]) -> Callable[..., Any]:
    for each in reversed(_QUESTIONS):
        help_text = f"{each.text}, such as {each.default}."
        declared = click.option(each.flag, each.name, metavar=each.metavar, help=help_text)
        function = declared(function)
    return function


@click.command(cls=Command, answer=Cluster)
@click.argument("file", metavar="CLUSTER.json", type=click.Path(path_type=Path))
@click.option(
    "--this-machine",
    is_flag=True,
    help="Describe this machine's cores and memory; --devices gives the number of ranks.",
)
@_options
def make(file: Path, this_machine: bool, **given: str | None) -> Answer:
    """Make a cluster's file from this machine, or from questions and answers.

    Options answer questions beforehand. What no option answers is asked on the terminal.
    """
    check_folder("a cluster", file)
    cluster = _this_machine(file, given) if this_machine else _described(file, given)
    write_json(file, cluster.to_json(), indent=2)
    devices = f"{cluster.devices} device{'' if cluster.devices == 1 else 's'}"
    said = f"{devices}: {links_line(cluster) or 'no links'}"
    return Answer(cluster, (said, f"written to {file}; give it by --cluster {file}"))


def _this_machine(file: Path, given: dict[str, str | None]) -> Cluster:
    """The cluster of ranks on this machine, with the figures of the template."""
    others = [each.flag for each in _QUESTIONS if each.name != "devices" and given[each.name]]
    if others:
        raise OptionError(
            f"--this-machine takes --devices alone. Got {', '.join(others)}; leave it out, or "
            "leave --this-machine out."
        )
    question = next(each for each in _QUESTIONS if each.name == "devices")
    cores = available_cores()
    devices = question.answer(given["devices"] or str(cores))
    memory_bytes = usable_memory_bytes()
    found = Cluster.for_hosts(load_cluster("this-machine"), [devices], memory_bytes, cores)
    said = f"{devices} ranks on a machine of {cores} cores. Rates of a core: see the sources."
    return replace(found, name=file.stem, description=said)


def _described(file: Path, given: dict[str, str | None]) -> Cluster:
    """The cluster that options and answers describe."""
    answers: dict[str, Any] = {}
    for question in _QUESTIONS:
        if question.name == "network" and answers["machines"] == 1:
            continue
        answers[question.name] = question.answer(given[question.name])
    levels = [
        Level(
            *("device", answers["devices"], _DEVICE_LATENCY_SECONDS),
            *(answers["link"] * 1e9, False),
        )
    ]
    if answers["machines"] > 1:
        network = answers["network"] * 1e9
        levels.insert(
            0, Level("machine", answers["machines"], _MACHINE_LATENCY_SECONDS, network, True)
        )
    rate = answers["tflops"] * 1e12
    device = Device(
        name=answers["device"],
        memory_bytes=answers["memory"],
        peak_flops_per_second=(("default", rate), ("float32", rate), ("float64", rate / 2)),
        efficiency=_EFFICIENCY,
        memory_bandwidth_bytes_per_second=answers["memory_speed"] * 1e9,
        operator_overhead_seconds=5e-6,
    )
    counts = " x ".join(str(level.count) for level in levels)
    return Cluster(
        name=file.stem,
        description=f"{counts} {device.name}, from answers to `tensoropt clusters make`.",
        sources=("rates, memory and links: the answers", _ASSUMED),
        levels=tuple(levels),
        device=device,
        safety_factor=1.1,
        collective_overhead_seconds=8.4e-6,
    )
