"""Steps and models whose plans are searched ahead, in a process of its own: eager execution is on.

``python plans_ahead_program.py FOLDER`` prints a line of JSON: for each door the number of searches
ahead, and of those of the start and of the one after the loss.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
import tensorflow

import tensoropt
from tensoropt.cost.measured_links import MeasuredLinks
from tensoropt.elastic.rank_variables import PLAN_AHEAD_VARIABLE, tell_checkpoint
from tensoropt.frontend.job.hardware import Hardware, RankFacts
from tensoropt.frontend.job.job import current
from tensoropt.frontend.planning import find_strategy as searching
from tensoropt.frontend.planning.ahead import steps
from tensoropt.frontend.planning.ahead.message import Message, read_message, write_message
from tensoropt.frontend.planning.ahead.search import search_ahead

__all__ = ["AtOnce", "ranks_on", "start", "watched"]


class AtOnce:
    """Stands for the process: it searches at once, in this process."""

    lines: ClassVar[list[str]] = []

    def __init__(self, message: Message, graphs: Sequence[Any]) -> None:
        self.message, self.graphs = message, graphs

    def start(self) -> None:
        file = io.BytesIO()
        write_message(self.message, self.graphs, file)
        file.seek(0)
        self.lines += search_ahead(*read_message(file))

    def is_alive(self) -> bool:
        return False

    def end(self) -> None:
        pass


def watched(patch: pytest.MonkeyPatch, folder: Path) -> list[str]:
    """The options of the searches that starts make; all files are in a folder."""
    patch.setenv("TENSOROPT_PLANS", str(folder / "plans"))
    patch.setenv("TENSOROPT_PROFILES", str(folder / "profiles"))
    patch.setattr(steps, "_Process", AtOnce)
    patch.setattr(steps, "_said", set())
    patch.setattr(AtOnce, "lines", [])
    # Virtual ranks note their steps as ranks under MPI do.
    patch.setattr(
        searching, "note_step", lambda job, *args: steps.note_step(replace(job, is_mpi=True), *args)
    )
    made: list[str] = []
    search = searching.plan_and_frontier

    def counted(request: Any, option: str) -> Any:
        made.append(option)
        return search(request, option)

    patch.setattr(searching, "plan_and_frontier", counted)
    return made


def ranks_on(hosts: str) -> list[RankFacts]:
    """A rank for each letter, which names its machine."""
    return [RankFacts(host, (0, 1), 2, 2**33, 0, None) for host in hosts]


def start(
    door: Callable[..., None], hosts: str, links: MeasuredLinks | None, **options: Any
) -> None:
    """What a process does that is started anew, on virtual ranks of these machines."""
    tensoropt.shutdown()
    tensoropt.init(devices=len(hosts))
    current().hardware, current().links = Hardware.of(ranks_on(hosts)), links
    door(**options)


def tape(**options: Any) -> None:
    weights = tensorflow.Variable(tensorflow.ones([4, 8]))

    def step(x: Any) -> Any:
        with tensorflow.GradientTape() as tape:
            loss = tensorflow.reduce_mean(tensorflow.nn.silu(x @ weights) ** 2)
        weights.assign_sub(0.1 * tape.gradient(loss, weights))
        return loss

    tensoropt.parallelize(step, **options)(tensorflow.ones([24, 4]))


def fit(**options: Any) -> None:
    import keras

    keras.utils.clear_session()  # names of layers begin anew, as in another process
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8), keras.layers.Dropout(0.5)])
    model = tensoropt.parallelize(model, **options)
    model.compile("adam", "mse")
    model.fit(tensorflow.ones([24, 4]), tensorflow.ones([24, 8]), batch_size=24, verbose=0)


def main(folder: Path) -> None:
    """Start each door on two machines of two ranks, and then on one of them."""
    counts = {}
    for door in (tape, fit):
        with pytest.MonkeyPatch.context() as patch:
            searches = watched(patch, folder / door.__name__)
            patch.setenv(PLAN_AHEAD_VARIABLE, "2,2;0,2;2,0")
            start(door, "aabb", None)
            tell_checkpoint()
            before = len(searches)
            patch.delenv(PLAN_AHEAD_VARIABLE)
            start(door, "bb", None)
            counts[door.__name__] = [len(AtOnce.lines), before, len(searches) - before]
    print(json.dumps(counts))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
