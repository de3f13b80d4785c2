"""The script for which ``tensoropt profile`` measures machines: it plans the step of a model.

mpirun -np 2 python -m tensoropt profile planned.py -- MODEL
"""

from __future__ import annotations

import sys

import tensoropt
from benchmarks.speed.models import BATCHES, training_step

tensoropt.enable_graph_mode()
tensoropt.init(allow_copies=True)
model = sys.argv[1]
step = training_step(model, BATCHES[model])
with step.graph.as_default():
    tensoropt.find_strategy(algorithm="ft", batch_size=BATCHES[model], fetches=[step.train])
