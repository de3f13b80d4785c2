"""The command ``tensoropt``; each subcommand has its own file."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

import tensoropt
from collectives.errors import CollectiveError
from tensoropt.cli.command import Answer, Group
from tensoropt.errors import TensorOptError

__all__ = ["main"]

_INTERRUPTED = 130
"""The exit status after Ctrl-C, as shells have it: 128 and the number of SIGINT."""

_MODULES = ("plan", "frontier", "profiling", "check", "profile", "show", "view", "diff", "run")
_FOLDERS = ("clusters", "doctor")
_COMMAND = Group(
    "tensoropt",
    modules={
        **{name: f"tensoropt.cli.{name}" for name in _MODULES},
        **{name: f"tensoropt.cli.{name}.command" for name in _FOLDERS},
    },
    help="Auto-parallel training for TensorFlow.",
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=False,
)
_COMMAND = click.version_option(tensoropt.__version__, message="%(version)s")(_COMMAND)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a subcommand; only ``profile`` and ``run`` start MPI.

    Args:
        arguments: the command line without the program's name; by default this process's.

    Returns:
        The exit status: 0, or 1 for an error that the output explains.

    Raises:
        SystemExit: with status 2 for an invalid command line.
    """
    own = list(sys.argv[1:] if arguments is None else arguments)
    try:
        ended = _COMMAND.main(own, "tensoropt", standalone_mode=False)
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx else "tensoropt"
        usage = f"{error.ctx.get_usage()}\n" if error.ctx else ""
        sys.stderr.write(f"{usage}{command}: error: {error.format_message()}\n")
        raise SystemExit(2) from error
    except click.Abort:
        sys.stderr.write("tensoropt: interrupted\n")
        return _INTERRUPTED
    except (TensorOptError, CollectiveError) as error:
        sys.stdout.flush()
        sys.stderr.write(f"tensoropt: {type(error).__name__}: {error}\n")
        return 1
    return ended.status if isinstance(ended, Answer) else int(ended or 0)
