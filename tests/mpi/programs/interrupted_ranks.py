"""A search that somebody interrupts. Every rank writes what became of it to a file.

    mpirun -np 2 python interrupted_ranks.py CASE FOLDER

The first rank's search stands still somewhere, and Ctrl-C comes: as a terminal sends it, to the
launcher, which passes it on to all ranks; or to the ranks themselves.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import tensorflow

import tensoropt as tf
from collectives import Group
from tensoropt.frontend.planning import find_strategy
from tensoropt.planner.searches import frontier_search
from tensoropt.search.baselines import data_parallel
from tensoropt.search.branching import first_phase
from tensoropt.search.limits import SearchLimits

BATCH, WIDTH = 64, 32
LAUNCHERS = ("mpirun", "mpiexec", "mpiexec.hydra")


class Interruption:
    """Ctrl-C, once, while a search stands still.

    Args:
        folder: has the ranks' process ids, and what the ranks tell each other.
        press: interrupts somebody.
        seconds: after which the search goes on, if nothing happens.
    """

    def __init__(
        self, folder: Path, press: Callable[[Path], None], seconds: float = 3600.0
    ) -> None:
        self._folder = folder
        self._press = press
        self._seconds = seconds

    def __call__(self, *_: object) -> None:
        while not (self._folder / "waits").exists():
            time.sleep(0.01)
        (self._folder / "pressed").touch()
        self._press(self._folder)
        time.sleep(self._seconds)


def press_for_all(folder: Path) -> None:
    """Interrupt what the ranks were started by: it passes a first signal on to all of them."""
    pid = int(os.environ["LAUNCHED_PID"])  # of what stands for this rank
    while pid > 1:
        name, _, rest = Path(f"/proc/{pid}/stat").read_text().partition("(")[2].rpartition(")")
        if name in LAUNCHERS:
            os.kill(pid, signal.SIGINT)
            return
        pid = int(rest.split()[1])
    raise RuntimeError(f"ranks are started by {LAUNCHERS}. Got none above this process.")


def press_for_each(folder: Path, ranks: Sequence[int] = (0, 1)) -> None:
    """Interrupt some ranks, and not the launcher."""
    for rank in ranks:
        os.kill(int((folder / f"pid{rank}").read_text()), signal.SIGINT)


@contextlib.contextmanager
def noted_waiting(folder: Path) -> Iterator[None]:
    """While the context lasts, the second rank says when it waits for the first one's answer."""
    real = find_strategy.others_ignore_interrupt

    @contextlib.contextmanager
    def others_ignore_interrupt(group: Group) -> Iterator[None]:
        with real(group):
            if group.rank == 1:
                (folder / "waits").touch()
            yield
        if group.rank == 1:
            (folder / "waits").unlink()

    with mock.patch.object(find_strategy, "others_ignore_interrupt", others_ignore_interrupt):
        yield


@contextlib.contextmanager
def slow_search(interruption: Interruption, *, begun: bool = False) -> Iterator[None]:
    """While the context lasts, every search has a first phase, which stands still before it has
    bounds, or once it has begun."""
    real = first_phase.tell
    # Nothing is small enough to be searched whole, and no gap is narrow enough.
    limits = SearchLimits(bounded_cells=0, few_cells=0, closing_gap=1e-9)

    def tell(what: str, done: int, all_: int) -> None:
        real(what, done, all_)
        if bool(done) == begun:
            interruption()

    with (
        mock.patch.object(first_phase, "tell", tell if tf.rank() == 0 else real),
        mock.patch.object(frontier_search, "_limits", return_value=limits),
    ):
        yield


def script() -> tuple[Any, Any, Any]:
    """Placeholder, loss and training operator of four layers."""
    features = tf.placeholder(tf.float32, [None, WIDTH], name="features")
    values = features
    for layer in range(4):
        initializer = tf.random_normal_initializer(stddev=0.1, seed=layer)
        weights = tf.get_variable(f"weights{layer}", [WIDTH, WIDTH], initializer=initializer)
        values = tf.nn.relu(tf.matmul(values, weights))
    loss = tf.reduce_mean(tf.square(values), name="loss")
    return features, loss, tf.train.GradientDescentOptimizer(0.1).minimize(loss)


def trained(session: Any, features: Any, loss: Any, step: Any) -> list[float]:
    """The losses of two steps."""
    session.run(tensorflow.compat.v1.global_variables_initializer())
    feed = {features: np.random.default_rng(0).normal(size=(BATCH, WIDTH)).astype(np.float32)}
    return [float(session.run([loss, step], feed)[0]) for _ in range(2)]


def found(truth: list[float]) -> dict[str, Any]:
    """What a strategy is found, when it has trained as it should."""
    with tensorflow.compat.v1.Graph().as_default():
        parts = script()
        plan = tf.find_strategy(batch_size=BATCH)
        tf.build_execution_graph(plan=plan)
        with tf.Session() as session:
            losses = trained(session, *parts)
    np.testing.assert_allclose(losses, truth, rtol=1e-5)
    return {"plan": plan.to_json(), "losses": losses}


def goes_on(folder: Path, truth: list[float]) -> dict[str, Any]:
    """Searches that end with what they have. MPICH's launcher ends the job at a second signal."""
    second_alone = partial(press_for_each, ranks=(1,))
    cases = {
        "after_bounds": (True, Interruption(folder, press_for_each)),
        "on_the_second_rank_alone": (True, Interruption(folder, second_alone, 1.0)),
        "before_bounds": (False, Interruption(folder, press_for_all)),
    }
    answers = {}
    for case, (begun, interruption) in cases.items():
        with slow_search(interruption, begun=begun):
            answers[case] = found(truth)
    return answers


def twice(folder: Path, truth: list[float]) -> dict[str, Any]:
    """The second one comes while the first one's answer is looked for."""
    again = Interruption(folder, press_for_each)
    first = Interruption(folder, press_for_all)
    with slow_search(first), mock.patch.object(data_parallel, "solve", again):
        return found(truth)


def before_anything_is_known(folder: Path, truth: list[float]) -> dict[str, Any]:
    """It comes while costs are worked out."""
    interruption = Interruption(folder, press_for_all)
    with mock.patch.object(frontier_search, "problem_of", interruption):
        return found(truth)


CASES = {each.__name__: each for each in (goes_on, twice, before_anything_is_known)}


def main() -> None:
    case, folder = sys.argv[1], Path(sys.argv[2])
    tf.init(allow_copies=True)
    v1 = tensorflow.compat.v1
    with v1.Graph().as_default(), v1.Session() as session:
        truth = trained(session, *script())
    (folder / f"pid{tf.rank()}").write_text(str(os.getpid()))
    with noted_waiting(folder):
        answers = CASES[case](folder, truth)
    (folder / f"found{tf.rank()}.json").write_text(json.dumps(answers))


if __name__ == "__main__":
    main()
