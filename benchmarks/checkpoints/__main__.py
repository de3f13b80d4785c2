"""``python -m benchmarks.checkpoints``: the memory of checkpoints, and checkpoints of killed jobs.

- ``memory``: the peak of a save and of a restore, on any rank and above the memory before, for a
  model that is split over the ranks: in slices, and by the script's own operators on whole values.
- ``kills``: jobs that save all the time are killed at random moments, either the first rank or the
  whole job. After each kill plain TensorFlow loads the folder's checkpoint. It has to be whole, and
  the last one that was saved or the one that was being saved. The next job continues from it.
- ``resumed``: a job that is killed in training continues on half as many ranks. Its last loss is
  compared with plain TensorFlow's.
- ``beside``: the share of time that saves add to the steps beside which they are written, and that
  saves add which return when their files are there.

The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import tempfile
import time
from pathlib import Path
from typing import Any

import tensorflow as tf

import tensoropt
from benchmarks.checkpoints.jobs import Job
from benchmarks.checkpoints.training import batch, model

__all__: list[str] = []

v1 = tf.compat.v1

_ACTS = ("save", "restore", "restore_over")
_WHOLE = ("save_whole", "restore_whole")
_ALLOWED_MIB = 64.0


def main() -> None:
    """Run the parts, print their results, and end with the JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", nargs="*", default=["memory", "kills", "resumed", "beside"])
    parser.add_argument("--mib", type=int, default=1024, help="size of the model")
    parser.add_argument("--whole", action="store_true", help="measure whole values, too")
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument("--steps", type=int, default=40, help="steps beside a save")
    options = parser.parse_args()
    tensoropt.enable_graph_mode()
    parts = {"memory": _memory, "kills": _kills, "resumed": _resumed, "beside": _beside}
    print(json.dumps({name: parts[name](options) for name in options.parts}))


def _memory(options: Any) -> dict[str, Any]:
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for act in _ACTS + _WHOLE * options.whole:
            job = Job(4, "memory", Path(folder), act, str(options.mib))
            found[act] = json.loads(job.output().splitlines()[-1])
            print(act, found[act], flush=True)
    within = all(found[act]["above"] <= found[act]["slices"] + _ALLOWED_MIB for act in _ACTS)
    return {"mib": options.mib, "ranks": 4, "acts": found, "within": within}


def _kills(options: Any) -> dict[str, Any]:
    """Kill jobs; each setting has its own folder."""
    moments = random.Random(options.seed)
    settings = list(itertools.product((2, 4), ("overwritten", "numbered"), (True, False)))
    found: list[dict[str, Any]] = []
    for number, (ranks, names, first_alone) in enumerate(settings):
        share = range(options.kills * number // 8, options.kills * (number + 1) // 8)
        with tempfile.TemporaryDirectory() as folder:
            for _ in share:
                outcome = _kill(Path(folder), ranks, names, first_alone, moments.random())
                found.append(outcome)
                print(ranks, names, "first rank" if first_alone else "job", outcome, flush=True)
    sums = {name: sum(each[name] for each in found) for name in ("good", "in_a_save", "saves")}
    return {"kills": len(found), **sums}


def _kill(folder: Path, ranks: int, names: str, first_alone: bool, moment: float) -> dict[str, int]:
    """Kill one job ``moment`` seconds after its second save, and check its folder."""
    before = tf.train.latest_checkpoint(str(folder))
    had = 0 if before is None else _number(before)
    job = Job(ranks, "saving", folder, names)
    job.wait_for("done", 2)
    time.sleep(moment)
    job.kill(1 if first_alone else None)
    ((went_on_from,),) = job.said("found")
    begun, done = (int(job.said(word)[-1][0]) for word in ("begun", "done"))
    path = tf.train.latest_checkpoint(str(folder))
    left = 0 if path is None else _number(path)
    return {
        "good": int(int(went_on_from) == had and done <= left <= begun),
        "saves": len(job.said("done")),
        "in_a_save": int(begun > done),
        "done": done,
        "begun": begun,
        "left": left,
    }


def _number(path: str) -> int:
    """The number that all variables of a checkpoint hold; -1 if they differ."""
    reader = tf.train.load_checkpoint(path)
    shapes = reader.get_variable_to_shape_map()
    values = {float(each) for name in shapes for each in reader.get_tensor(name).reshape(-1)}
    return int(values.pop()) if len(values) == 1 and len(shapes) == 4 else -1


def _resumed(options: Any) -> dict[str, Any]:
    del options
    last = 40
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        job = Job(4, "training", folder, str(last))
        job.wait_for("step", 23)
        job.kill()
        trained = len(job.said("step"))
        job = Job(2, "training", folder, str(last))
        job.output()
        steps = job.said("step")
    with v1.Graph().as_default(), v1.Session() as session:
        features, loss, training = model()
        session.run(v1.global_variables_initializer())
        for step in range(last):
            truth = float(session.run([loss, training], {features: batch(step)})[0])
    loss_found = float(steps[-1][1])
    return {
        "killed_after": trained,
        "went_on_at": int(steps[0][0]),
        "steps": last,
        "loss": loss_found,
        "truth": truth,
        "error": abs(loss_found / truth - 1),
    }


def _beside(options: Any) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        job = Job(2, "beside", Path(name), "1024", "256", str(options.steps), "7")
        found = json.loads(job.output().splitlines()[-1])
    for kind in ("beside", "beside_without_graph", "at_once"):
        found[f"{kind}_adds"] = found[kind] / found["none"] - 1
    return {"ranks": 2, **found}


if __name__ == "__main__":
    main()
