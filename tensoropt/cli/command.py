"""Subcommands: the values of their options, the arguments of a script, and errors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import click

from tensoropt.errors import OptionError
from tensoropt.planner.options.planning_options import command_options
from tensoropt.planner.options.values import Check, value_of

__all__ = ["Command", "ScriptCommand", "cluster_option", "given", "option", "planning_options"]

Function = Callable[..., Any]


cluster_option = click.option(
    "--cluster",
    metavar="NAME_OR_PATH",
    help="The cluster of the devices, see `tensoropt clusters`; by default this machine.",
)
"""Declares the option for the cluster to plan for."""


def given(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that the command line gives, without those that it leaves out."""
    return {name: value for name, value in options.items() if value is not None}


def option(
    flag: str,
    metavar: str,
    parse: Callable[[str], Any],
    check: Check,
    name: str | None = None,
    **settings: Any,
) -> Callable[[Function], Function]:
    """Declare an option whose value is checked.

    Args:
        flag: the option's name on the command line.
        metavar: its value in the help.
        parse: the value of a text.
        check: the check of the value.
        name: the function's parameter; by default after the flag.
        settings: further arguments of `click.option`.
    """

    def value(ctx: click.Context, _: click.Parameter, text: str | None) -> Any:
        try:
            return None if text is None else check(flag, value_of(text, parse))
        except OptionError as error:
            raise click.UsageError(str(error), ctx) from error

    names = [flag, name] if name else [flag]
    return click.option(*names, metavar=metavar, type=str, callback=value, **settings)


def planning_options(*names: str) -> Callable[[Function], Function]:
    """Declare options of planning, which replace the script's.

    Args:
        names: their names in `PlanningOptions`; by default all that the command line has.
    """

    def declare(function: Function) -> Function:
        for each in reversed(command_options()):
            if not names or each.name in names:
                text = f"{each.help[0].upper()}{each.help[1:]}."
                declared = option(
                    each.flag, each.metavar, each.parse, each.check, each.name, help=text
                )
                function = declared(function)
        return function

    return declare


class Command(click.Command):
    """A subcommand. The context's object has the arguments after ``--``; None without ``--``."""

    allow_extra_args = True  # `check_further` refuses them, with a remedy
    remedy = ""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the command line; see `click.Command`.

        Raises:
            UsageError: an option that does not exist, with the nearest name; an argument too many.
        """
        try:
            rest = super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            options = [item for item in self.get_params(ctx) if isinstance(item, click.Option)]
            known = [name for item in options for name in item.opts]
            kind = f"an option of `tensoropt {self.name}`"
            text = f"{OptionError.one_of(kind, error.option_name, known)}{self.remedy}"
            raise click.UsageError(text, ctx) from error
        self.check_further(ctx)
        return rest

    def check_further(self, ctx: click.Context) -> None:
        """Refuse more arguments than the subcommand declares."""
        if ctx.args or ctx.obj is not None:
            got = " ".join([*ctx.args, *([] if ctx.obj is None else ["--", *ctx.obj])])
            ctx.fail(f"`tensoropt {self.name}` takes no further arguments. Got {got!r}; drop them.")


class ScriptCommand(Command):
    """A subcommand whose script has the arguments after ``--``."""

    remedy = " A script's own arguments come after `--`."

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """The parts of the usage line; see `click.Command`."""
        return [*super().collect_usage_pieces(ctx), "[-- SCRIPT ARGUMENTS]"]

    def check_further(self, ctx: click.Context) -> None:
        """Refuse arguments of the script before ``--``."""
        if ctx.args:
            got, remedy = " ".join(ctx.args), self.remedy.strip(" .")
            ctx.fail(f"{remedy}. Got {got!r} before it; write -- {ctx.args[0]}.")
