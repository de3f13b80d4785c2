"""``tensoropt plan``: what a script would run on some other devices."""

from __future__ import annotations

import argparse
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tensoropt.cli.arguments import Subparsers, memory_bytes, positive
from tensoropt.cli.show import print_plan
from tensoropt.cost.cluster import load_cluster
from tensoropt.errors import OptionError
from tensoropt.plan import Plan

if TYPE_CHECKING:  # the frontend imports TensorFlow, which the other subcommands do without
    from tensoropt.frontend.job import Rehearsal

__all__ = ["add_parser", "rehearsed_plan"]

_DESCRIPTION = """
Run a training script on this process alone, without MPI, up to its build_execution_graph, with
find_strategy planning for the devices of a cluster; print the plan and the frontier that it was
chosen from. Nothing is trained. Arguments that this command does not know are the script's, and so
is everything after `--`.
"""


def add_parser(subparsers: Subparsers) -> None:
    """Describe the subcommand."""
    parser = subparsers.add_parser(
        "plan",
        help="plan a script for the devices of a cluster, without running it",
        description=_DESCRIPTION,
        usage="tensoropt plan SCRIPT [script arguments] --devices N [options]",
        allow_abbrev=False,
    )
    parser.add_argument("script", metavar="SCRIPT", type=Path, help="the training script")
    parser.add_argument(
        "--devices", metavar="N", type=positive, required=True, help="number of devices"
    )
    parser.add_argument(
        "--cluster",
        metavar="NAME_OR_PATH",
        help="the cluster that they are of, see `tensoropt clusters`; by default this machine",
    )
    parser.add_argument(
        "--batch-size",
        metavar="B",
        type=positive,
        help="global batch, instead of the script's",
    )
    parser.add_argument(
        "--memory-limit",
        metavar="AMOUNT",
        type=memory_bytes,
        help="memory of one device, such as 8GiB, instead of the cluster's",
    )
    parser.add_argument("--output", metavar="PLAN.json", type=Path, help="write the plan here")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Plan, print, and write the plan."""
    from tensoropt.frontend.job import Rehearsal

    rehearsal = Rehearsal(
        devices=options.devices,
        cluster=None if options.cluster is None else load_cluster(options.cluster),
        batch_size=options.batch_size,
        memory_limit_bytes=options.memory_limit,
    )
    plan = rehearsed_plan(options.script, options.script_arguments, rehearsal)
    print_plan(plan)
    if options.output is not None:
        plan.save(options.output)
        print(f"written to {options.output}")


def rehearsed_plan(script: Path, arguments: Sequence[str], rehearsal: Rehearsal) -> Plan:
    """The plan with which a script calls ``build_execution_graph``.

    Args:
        script: a Python file, run as ``__main__``.
        arguments: its command line.
        rehearsal: what it is planned for.

    Raises:
        OptionError: if there is no such file, or the script ends before it builds.
    """
    from tensoropt.frontend.job import rehearse
    from tensoropt.frontend.strategy import RehearsalOver

    if not script.is_file():
        raise OptionError(f"a script to plan is a Python file. Got {str(script)!r}, which is none.")
    ended = ""
    argv, path = sys.argv, list(sys.path)
    sys.argv = [str(script), *arguments]
    sys.path.insert(0, str(script.resolve().parent))
    try:
        with rehearse(rehearsal):
            runpy.run_path(str(script), run_name="__main__")
    except RehearsalOver as over:
        return over.plan
    except SystemExit as error:
        ended = f" with exit status {error.code!r}"
    finally:
        sys.argv, sys.path[:] = argv, path
    raise OptionError(
        "a script to plan calls init, find_strategy and build_execution_graph. Got the end of "
        f"{str(script)!r}{ended} before build_execution_graph; check its arguments."
    )
