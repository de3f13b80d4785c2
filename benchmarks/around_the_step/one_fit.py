"""One ``fit`` with validation, ModelCheckpoint and TensorBoard; each rank writes its figures.

    mpirun -np 2 python -m benchmarks.around_the_step.one_fit MODEL WAY FOLDER --ranks 2

The way ``keras`` runs in one process, without mpirun. Horovod's ranks have shards of the data, and
its first rank writes.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import keras

from benchmarks.around_the_step.phases import Phases, time_input
from benchmarks.around_the_step.ways import WAYS, set_threads, way_of
from benchmarks.around_the_step.workloads import WORKLOADS

__all__: list[str] = []


def main() -> None:
    """Train, and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", choices=WORKLOADS)
    parser.add_argument("way", choices=WAYS)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--examples", type=int, required=True, help="of an epoch")
    parser.add_argument("--epochs", type=int, default=2, help="measured, after one that is not")
    options = parser.parse_args()
    phases = Phases()
    set_threads(options.way, options.ranks)
    keras.utils.set_random_seed(1)
    workload = WORKLOADS[options.model]
    model = workload.model()
    way = way_of(options.way, model)
    model.compile("adam", workload.loss, metrics=list(workload.metrics))
    for name in ("train", "test"):
        time_input(model, name, phases, way.takes_batches)
    files = options.folder / f"{options.way}-files"
    boards = [keras.callbacks.TensorBoard(str(files), write_graph=False)] if way.writes else []
    savers = [keras.callbacks.ModelCheckpoint(f"{files}/{{epoch}}.keras")] if way.writes else []
    model.fit(
        workload.batches(options.examples, way.shards, way.rank, shuffled=True),
        validation_data=workload.batches(options.examples // 2, way.shards, way.rank),
        epochs=1 + options.epochs,
        callbacks=phases.callbacks([*way.callbacks, *boards], savers),
        verbose=0,
    )
    figures = json.dumps(phases.finish())
    (options.folder / f"rank-{way.rank}.json").write_text(figures)


if __name__ == "__main__":
    main()
