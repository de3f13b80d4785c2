"""The command ``tensoropt``: one subcommand a file."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import tensoropt
from tensoropt.cli import check, clusters, plan, profile, show
from tensoropt.errors import TensorOptError

__all__ = ["main"]

_SUBCOMMANDS = (plan, check, profile, show, clusters)
_OF_SCRIPTS = ("plan", "check", "profile")  # what they do not know is the script's


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a subcommand; only ``profile`` starts MPI.

    Args:
        arguments: the command line without the program's name; by default this process's.

    Returns:
        The exit status: 0, or 1 for an error that the output explains.

    Raises:
        SystemExit: with status 2 for a command line that makes no sense.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    own, separator, rest = _split(given)
    parser = _parser()
    options, unknown = parser.parse_known_args(own)
    passed_on = [*unknown, *rest]
    if options.subcommand in _OF_SCRIPTS:
        options.script_arguments = passed_on
    elif passed_on or separator:
        parser.error(f"unrecognized arguments: {' '.join(passed_on)}")
    try:
        options.run(options)
    except TensorOptError as error:
        sys.stdout.flush()
        sys.stderr.write(f"tensoropt: {type(error).__name__}: {error}\n")
        return 1
    return 0


def _split(arguments: list[str]) -> tuple[list[str], bool, list[str]]:
    """What stands before ``--``, whether it is there, and what stands after it."""
    if "--" not in arguments:
        return arguments, False, []
    position = arguments.index("--")
    return arguments[:position], True, arguments[position + 1 :]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tensoropt", description="Auto-parallel training for TensorFlow."
    )
    parser.add_argument("--version", action="version", version=tensoropt.__version__)
    subparsers = parser.add_subparsers(dest="subcommand", required=True, metavar="SUBCOMMAND")
    for subcommand in _SUBCOMMANDS:
        subcommand.add_parser(subparsers)
    return parser
