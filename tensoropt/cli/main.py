"""The command ``tensoropt``; each subcommand has its own file."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Mapping, Sequence

import tensoropt
from tensoropt.cli import check, clusters, plan, profile, show
from tensoropt.errors import OptionError, TensorOptError

__all__ = ["main"]

_SUBCOMMANDS = (plan, check, profile, show, clusters)
_OWN_ARGUMENTS = "A script's own arguments come after `--`"
_OF_SCRIPTS = ("plan", "check", "profile")  # subcommands that pass arguments after `--` on


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a subcommand; only ``profile`` starts MPI.

    Args:
        arguments: the command line without the program's name; by default this process's.

    Returns:
        The exit status: 0, or 1 for an error that the output explains.

    Raises:
        SystemExit: with status 2 for an invalid command line.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    before, separator, rest = _split(given)
    parser, subparsers = _parser()
    if before and before[0] in subparsers:
        _check_options(subparsers[before[0]], before)
    options, unknown = parser.parse_known_args(before)
    if options.subcommand in _OF_SCRIPTS:
        if unknown:
            subparsers[options.subcommand].error(
                f"{_OWN_ARGUMENTS}. Got {' '.join(unknown)!r} before it; write -- {unknown[0]}."
            )
        options.script_arguments = rest
    elif unknown or separator:
        parser.error(f"unrecognized arguments: {' '.join([*unknown, *rest])}")
    try:
        options.run(options)
    except TensorOptError as error:
        sys.stdout.flush()
        sys.stderr.write(f"tensoropt: {type(error).__name__}: {error}\n")
        return 1
    return 0


def _split(arguments: list[str]) -> tuple[list[str], bool, list[str]]:
    """The arguments before ``--``, whether it is there, and the arguments after it."""
    if "--" not in arguments:
        return arguments, False, []
    position = arguments.index("--")
    return arguments[:position], True, arguments[position + 1 :]


def _check_options(parser: argparse.ArgumentParser, arguments: list[str]) -> None:
    """End with an error that suggests the nearest name if an option does not exist.

    This comes before argparse's own errors, such as that a misspelt required option is missing.
    """
    subcommand, known = arguments[0], list(parser._option_string_actions)
    for argument in arguments:
        name = argument.partition("=")[0]
        if re.match("--?[A-Za-z]", name) and name not in known:
            error = str(OptionError.one_of(f"an option of `tensoropt {subcommand}`", name, known))
            more = f" {_OWN_ARGUMENTS}." if subcommand in _OF_SCRIPTS else ""
            parser.error(f"{error}{more}")


def _parser() -> tuple[argparse.ArgumentParser, Mapping[str, argparse.ArgumentParser]]:
    """The parser of the command, and those of its subcommands by name."""
    parser = argparse.ArgumentParser(
        prog="tensoropt", description="Auto-parallel training for TensorFlow."
    )
    parser.add_argument("--version", action="version", version=tensoropt.__version__)
    subparsers = parser.add_subparsers(dest="subcommand", required=True, metavar="SUBCOMMAND")
    for subcommand in _SUBCOMMANDS:
        subcommand.add_parser(subparsers)
    return parser, subparsers.choices
