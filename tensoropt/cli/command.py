"""Subcommands: the values of their options, the arguments of a script, and errors."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from tensoropt.converters import to_values
from tensoropt.cost.cluster import cluster_names
from tensoropt.errors import OptionError
from tensoropt.planner.options.values import Check, value_of
from tensoropt.report.text_table import Report, write

__all__ = [
    "Answer",
    "Command",
    "Group",
    "ScriptCommand",
    "check_folder",
    "cluster_option",
    "complete_cluster",
    "given",
    "option",
    "planning_options",
    "write_answer",
]

_SCHEMA = 1
"""The version of the answers without a version of their own."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of a subcommand.

    Attributes:
        value: the dataclass that ``--json`` writes.
        parts: the text, one part below the other.
        status: the exit status of the command.
        as_json: whether JSON is the text for people, too.
    """

    value: Any
    parts: tuple[Report | str, ...]
    status: int = 0
    as_json: bool = False


def write_answer(answer: Answer, as_json: bool) -> None:
    """Write an answer to standard output, as JSON with its ``schema`` or as text.

    The JSON of a plan is that of its file.
    """
    if not (as_json or answer.as_json):
        write(*answer.parts)
        return
    value = answer.value
    own = getattr(value, "to_json", None)
    values = {"schema": _SCHEMA, **to_values(value)} if own is None else own()
    sys.stdout.write(f"{json.dumps(values, indent=1)}\n")
    sys.stdout.flush()


Function = Callable[..., Any]

_AS_JSON = "as_json"


def complete_cluster(_: click.Context, __: click.Parameter, begun: str) -> list[str]:
    """The names of clusters that begin as the text does, for the shell."""
    return [name for name in cluster_names() if name.startswith(begun)]


def check_folder(what: str, file: Path, flag: str = "") -> None:
    """Check that a file can be written, before the work for it.

    Args:
        what: the content, with its article.
        file: the file.
        flag: the option that names it; empty for an argument.

    Raises:
        OptionError: its folder does not exist, or cannot be written; it is a folder itself.
    """
    got, folder = f"{flag} {str(file)!r}".lstrip(), file.absolute().parent
    if not folder.is_dir():
        raise OptionError(
            f"{what} is written into an existing folder. Got {got}; make its folder, or give "
            "another path."
        )
    if file.is_dir():
        raise OptionError(
            f"{what} is written into a file. Got {got}, which is a folder; give the path of a file."
        )
    if not os.access(folder, os.W_OK) and not (file.exists() and os.access(file, os.W_OK)):
        raise OptionError(
            f"{what} is written into a folder that this user can write. Got {got}; give another "
            "path."
        )


cluster_option = click.option(
    "--cluster",
    metavar="NAME_OR_PATH",
    shell_complete=complete_cluster,
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

    def value(ctx: click.Context, _: click.Parameter, text: str | tuple[str, ...] | None) -> Any:
        if text is None or text == ():
            return None
        try:
            if isinstance(text, tuple):
                return check(flag, [value_of(each, parse) for each in text])
            return check(flag, value_of(text, parse))
        except OptionError as error:
            raise click.UsageError(str(error), ctx) from error

    names = [flag, name] if name else [flag]
    return click.option(*names, metavar=metavar, type=str, callback=value, **settings)


def planning_options(*names: str, without: Collection[str] = ()) -> Callable[[Function], Function]:
    """Declare options of planning, which replace the script's.

    Args:
        names: their names in `PlanningOptions`; by default all that the command line has.
        without: names to leave out.

    The import is local, because it takes most of a second, and not all subcommands plan.
    """

    from tensoropt.planner.options.planning_options import command_options

    def declare(function: Function) -> Function:
        for each in reversed(command_options()):
            if each.name in (names or (each.name,)) and each.name not in without:
                text = f"{each.help[0].upper()}{each.help[1:]}."
                declared = option(
                    each.flag,
                    each.metavar,
                    each.parse,
                    each.check,
                    each.name,
                    help=text,
                    multiple=each.several,
                )
                function = declared(function)
        return function

    return declare


class Command(click.Command):
    """A subcommand, whose function returns an `Answer` or writes its output itself.

    Args:
        answer: the type of its answers' values, which gives it the option ``--json``; None if the
            function returns no answer.
    """

    allow_extra_args = True  # `parse_args` refuses them, with a remedy
    remedy = ""

    def __init__(self, *arguments: Any, answer: type | None = None, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.answer = answer
        if answer is not None:
            text = "Write the answer as JSON, and the output of a script to standard error."
            self.params.append(click.Option(["--json", _AS_JSON], is_flag=True, help=text))

    def invoke(self, ctx: click.Context) -> Any:
        """Call the function, and write its answer; see `click.Command`."""
        as_json = bool(ctx.params.pop(_AS_JSON, False))
        with contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext():
            answer = super().invoke(ctx)
        if isinstance(answer, Answer):
            write_answer(answer, as_json)
        return answer

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the command line; see `click.Command`.

        Raises:
            UsageError: an option that does not exist, with the nearest name; an argument too many
                or too few; an option without its value, or with one that it does not take.
        """
        try:
            rest = super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            raise _unknown(error, ctx, self.remedy) from error
        except click.MissingParameter as error:
            lacks = error.param
            name = lacks.human_readable_name if lacks else "more"
            name = lacks.opts[0] if isinstance(lacks, click.Option) else name
            ctx.fail(f"`{ctx.command_path}` takes {name}. Got none; give it.")
        except click.BadOptionUsage as error:
            flags = {name for each in self.params if not _takes_value(each) for name in each.opts}
            rule = "takes a value. Got none; give it, see --help."
            if error.option_name in flags:
                rule = "takes no value. Got one; drop it."
            ctx.fail(f"`{error.option_name}` {rule}")
        if ctx.args and not ctx.resilient_parsing:
            got = " ".join(ctx.args)
            ctx.fail(f"`{ctx.command_path}` takes no further arguments. Got {got!r}; drop them.")
        return rest


def _takes_value(parameter: click.Parameter) -> bool:
    return not (isinstance(parameter, click.Option) and (parameter.is_flag or parameter.count))


class ScriptCommand(Command):
    """A subcommand with a script, whose ``arguments`` come after ``--``.

    Its function has a parameter ``arguments`` for them.
    """

    remedy = " A script's own arguments come after `--`."

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.params.append(
            click.Argument(
                *(["arguments"], False),
                nargs=-1,
                type=click.UNPROCESSED,
                metavar="[-- SCRIPT ARGUMENTS]",
            )
        )


def _unknown(error: click.NoSuchOption, ctx: click.Context, remedy: str) -> click.UsageError:
    """The error for an option that a command does not have, with the nearest name."""
    options = [item for item in ctx.command.get_params(ctx) if isinstance(item, click.Option)]
    known = [name for item in options for name in item.opts]
    kind = f"an option of `{ctx.command_path}`"
    text = f"{OptionError.one_of(kind, error.option_name, known)}{remedy}"
    return click.UsageError(text, ctx)


class Group(click.Group):
    """A command with subcommands; an unknown one is an error with the nearest name.

    Args:
        modules: the module of each subcommand, which has it by its name. A module is imported when
            its subcommand is asked for, so that completion in a shell is quick.
    """

    def __init__(self, *arguments: Any, modules: Mapping[str, str] | None = None, **settings: Any):
        super().__init__(*arguments, **settings)
        self.modules = modules or {}

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the command line up to the subcommand; see `click.Group`."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            raise _unknown(error, ctx, " A subcommand's options come after it.") from error

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of the subcommands, in their order; see `click.Group`."""
        return [*self.modules, *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """A subcommand, which is imported now; see `click.Group`."""
        if cmd_name not in self.modules:
            return super().get_command(ctx, cmd_name)
        command: click.Command = getattr(import_module(self.modules[cmd_name]), cmd_name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The subcommand of a command line; see `click.Group`."""
        known = self.list_commands(ctx)
        if args[0] not in known and not ctx.resilient_parsing:
            kind = f"a subcommand of `{ctx.command_path}`"
            ctx.fail(str(OptionError.one_of(kind, args[0], known)))
        return super().resolve_command(ctx, args)
