"""The counts of a supervised job, which a file keeps for a batch system that starts it again."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tensoropt.converters import Natural
from tensoropt.errors import OptionError
from tensoropt.json_files import read_json, write_json
from tensoropt.signed_files import FileKind

__all__ = ["State", "StateFile"]

_KIND = FileKind(1, "files of `tensoropt run --state`", "Remove the file to count from 0.")


@dataclass(frozen=True, slots=True)
class State:
    """The counts of a job that has not ended.

    Attributes:
        starts: how often the job was started.
        checkpoints: checkpoints that all starts together have saved.
        fruitless: starts in a row that were lost before they saved a checkpoint.
        suspect: the host that the last start's output named as lost, if that start saved none.
        left_out: hosts that are not used although they answer: two starts in a row were lost there.
        command: the command of each rank.
    """

    starts: Natural = 0
    checkpoints: Natural = 0
    fruitless: Natural = 0
    suspect: str = ""
    left_out: tuple[str, ...] = ()
    command: tuple[str, ...] = ()


class StateFile:
    """A file with a `State`; it is there from the first start to the end of the job.

    Args:
        path: the path of the file; None to keep nothing.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path

    def read(self, command: tuple[str, ...]) -> State:
        """The state of a job that was interrupted; a new one without a file.

        Args:
            command: the command of each rank.

        Raises:
            PlanError: if the file is damaged.
            OptionError: if the file is of another command.
        """
        if self._path is None or not self._path.exists():
            return State(command=command)
        values = read_json(self._path, f"{_KIND.name} are JSON", _KIND.remedy)
        state = _KIND.read(State, values, str(self._path))
        if state.command != command:
            raise OptionError(
                f"--state is a file of the same job. Got {str(self._path)!r}, of the command "
                f"{' '.join(state.command)!r}; give each job a file of its own."
            )
        return state

    def write(self, state: State) -> None:
        """Replace the file.

        Raises:
            OptionError: if it cannot be written.
        """
        try:
            if self._path is not None:
                write_json(self._path, _KIND.signed(state), indent=1)
        except OSError as error:
            raise OptionError(
                f"--state is a file that can be written. Got {str(self._path)!r}: {error}. Give a "
                "path in a folder that exists."
            ) from error

    def remove(self) -> None:
        """Remove the file of a job that has ended."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)
