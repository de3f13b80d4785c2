"""The command ``tensoropt``; each subcommand has its own file."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

import tensoropt
from tensoropt.cli.check import check
from tensoropt.cli.clusters import clusters
from tensoropt.cli.plan import plan
from tensoropt.cli.profile import profile
from tensoropt.cli.run import run
from tensoropt.cli.show import show
from tensoropt.cli.view import view
from tensoropt.errors import OptionError, TensorOptError

__all__ = ["main"]


class _Subcommands(click.Group):
    """The subcommands; an unknown one is an error with the nearest name."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The subcommand of a command line; see `click.Group`."""
        if args[0] not in self.commands:
            ctx.fail(str(OptionError.one_of("a subcommand", args[0], self.commands)))
        return super().resolve_command(ctx, args)


_COMMAND = _Subcommands(
    "tensoropt",
    {command.name or "": command for command in (plan, check, profile, show, view, clusters, run)},
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
    script_arguments = None
    if "--" in own:
        position = own.index("--")
        own, script_arguments = own[:position], own[position + 1 :]
    try:
        with _COMMAND.make_context("tensoropt", own, obj=script_arguments) as context:
            _COMMAND.invoke(context)
    except click.exceptions.Exit as ended:  # after --help or --version
        return ended.exit_code
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx else "tensoropt"
        usage = f"{error.ctx.get_usage()}\n" if error.ctx else ""
        sys.stderr.write(f"{usage}{command}: error: {error.format_message()}\n")
        raise SystemExit(2) from error
    except TensorOptError as error:
        sys.stdout.flush()
        sys.stderr.write(f"tensoropt: {type(error).__name__}: {error}\n")
        return 1
    return 0
