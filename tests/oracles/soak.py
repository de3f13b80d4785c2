"""``python -m tests.oracles.soak``: memory stays flat over many steps and saves on many ranks.

A small Transformer, or a network of two dense layers, is trained under ``mpirun``. Its variables
are saved regularly under one name and under numbered names. Each rank notes its resident memory and
its open files. The last line is one JSON object: ranks, steps, seconds a step, the resident MiB of
the first rank at some steps, and the largest growth of any rank in the second half.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from tensoropt.elastic.launcher import mpirun

__all__ = ["main"]

ROOT = Path(__file__).resolve().parent.parent.parent
MODELS = ("dense", "transformer")
NOTES = 10
LIMIT_SECONDS = 3600.0
PAGE_MIB = os.sysconf("SC_PAGE_SIZE") / 2**20


def _built(model: str) -> tuple[Any, dict[Any, Any]]:
    """Build a model; return its loss and a batch."""
    import tensoropt as tf
    from examples.models import transformer

    random = np.random.default_rng(0)
    if model == "transformer":
        sizes = {"layers": 1, "model_width": 32, "heads": 4, "feed_forward_width": 64}
        lengths = {"source_length": 8, "target_length": 8, "vocabulary": 64}
        made = transformer(**sizes, **lengths)
        shapes = {t: [16, *t.shape.as_list()[1:]] for t in made.placeholders.values()}
        return made.loss, {t: random.integers(16, size=shape) for t, shape in shapes.items()}
    features = tf.placeholder(tf.float32, [None, 64])
    hidden = tf.nn.relu(tf.matmul(features, tf.get_variable("first", [64, 64])))
    loss = tf.reduce_mean(tf.square(tf.matmul(hidden, tf.get_variable("second", [64, 16]))))
    return loss, {features: random.normal(size=(32, 64)).astype(np.float32)}


def train(model: str, steps: int, save_every: int, folder: Path) -> None:
    """Train on one rank; notes go to a file of the rank."""
    import tensoropt as tf

    tf.init()
    loss, feeds = _built(model)
    step = tf.train.MomentumOptimizer(0.01, 0.9).minimize(loss)
    plan = tf.find_strategy(feed_dict=feeds, algorithm="data_parallel")
    tf.build_execution_graph(plan=plan)
    saver = tf.train.Saver(max_to_keep=2)
    notes = []
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        begun = time.perf_counter()
        for number in range(1, steps + 1):
            session.run(step, feeds)
            if number % save_every == 0:
                saver.save(session, str(folder / "last"))
                saver.save(session, str(folder / "numbered"), global_step=number)
            if number % (steps // NOTES) == 0:
                notes.append((number, _resident_mib(), len(os.listdir("/proc/self/fd"))))
        seconds = (time.perf_counter() - begun) / steps
    found = {"notes": notes, "seconds": seconds}
    (folder / f"rank{tf.rank()}.json").write_text(json.dumps(found), encoding="utf-8")


def _resident_mib() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_MIB


def main() -> int:
    """Run the job and print the JSON line; the status is 1 if the job failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.oracles.soak", description=__doc__)
    parser.add_argument("model", nargs="?", choices=MODELS, default="dense")
    parser.add_argument("--ranks", type=int, default=16)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--save-every", type=int, default=100)
    parser.add_argument("--rank-folder", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.rank_folder:
        train(arguments.model, arguments.steps, arguments.save_every, arguments.rank_folder)
        return 0
    with tempfile.TemporaryDirectory() as name:
        command = [
            mpirun(),
            "-np",
            str(arguments.ranks),
            sys.executable,
            "-m",
            "tests.oracles.soak",
        ]
        command += [arguments.model, "--steps", str(arguments.steps)]
        command += ["--save-every", str(arguments.save_every), "--rank-folder", name]
        finished = subprocess.run(
            command, cwd=ROOT, stdin=subprocess.DEVNULL, timeout=LIMIT_SECONDS, check=False
        )
        if finished.returncode:
            return 1
        files = sorted(Path(name).glob("rank*.json"))
        ranks = [json.loads(file.read_text(encoding="utf-8")) for file in files]
    middle = NOTES // 2 - 1
    growth = [of["notes"][-1][1] - of["notes"][middle][1] for of in ranks]
    opened = [of["notes"][-1][2] - of["notes"][middle][2] for of in ranks]
    result = {
        "model": arguments.model,
        "ranks": len(ranks),
        "steps": arguments.steps,
        "milliseconds_per_step": round(1e3 * float(np.median([of["seconds"] for of in ranks])), 2),
        "resident_mib": {str(at): round(mib, 1) for at, mib, _ in ranks[0]["notes"]},
        "grown_mib_in_second_half": round(max(growth), 1),
        "opened_files_in_second_half": max(opened),
    }
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
