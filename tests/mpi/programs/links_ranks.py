"""Two ranks as if on two machines plan twice; the first rank prints the levels of both plans.

mpirun -np 2 python links_ranks.py FOLDER
"""

from __future__ import annotations

import json
import os
import sys

os.environ["COLLECTIVES_HOST"] = f"m{os.environ['PMI_RANK']}"
os.environ["TENSOROPT_PROFILES"] = sys.argv[1]

import tensorflow as tf

import tensoropt
from tensoropt.plan import Plan

v1 = tf.compat.v1


def planned() -> Plan:
    """The plan of one dense layer."""
    with tf.Graph().as_default():
        values = v1.placeholder(tf.float32, [None, 64])
        weights = v1.get_variable("weights", [64, 64])
        loss = tf.reduce_mean(tf.square(tf.matmul(values, weights)))
        tensoropt.train.GradientDescentOptimizer(0.1).minimize(loss)
        return tensoropt.find_strategy(batch_size=8)


tensoropt.init()
first = planned()
tensoropt.shutdown()
tensoropt.init()
second = planned()
if tensoropt.rank() == 0:
    plans = [plan.cluster.to_json() for plan in (first, second)]
    print(json.dumps({"name": str(first.cluster), "levels": [each["levels"] for each in plans]}))
