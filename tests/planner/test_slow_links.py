"""A plan for machines that a slow link joins: splits within a machine, replicas across."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import tensoropt as tf
from tensoropt.cost.cluster import Cluster, load_cluster

WIDTH, LAYERS, BATCH = 2048, 4, 4096
MEMORY_BYTES = 198 << 20  # of which 180 MiB are used; weights, momentum, gradients are 192 MiB
ACROSS, WITHIN = 0, 1  # mesh axes


@pytest.fixture(autouse=True)
def graph() -> Iterator[None]:
    tf.enable_graph_mode()
    tf.reset_default_graph()
    yield
    tf.shutdown()
    tf.reset_default_graph()


def test_weights_are_split_within_machines_and_replicated_across(tmp_path: Path) -> None:
    path = tmp_path / "cluster.json"
    cluster = Cluster.for_hosts(load_cluster("this-machine"), [2, 2], 2**33, 2)
    path.write_text(json.dumps(cluster.to_json()))
    tf.init(devices=4, cluster=path)
    values = tf.placeholder(tf.float32, [None, WIDTH])
    for layer in range(LAYERS):
        values = tf.nn.relu(tf.matmul(values, tf.get_variable(f"weights{layer}", [WIDTH, WIDTH])))
    tf.train.MomentumOptimizer(0.1, 0.9).minimize(tf.reduce_mean(tf.square(values)))
    plan = tf.find_strategy(
        batch_size=BATCH,
        pipeline=False,
        save_memory=False,
        microbatches=1,
        memory_limit_bytes=MEMORY_BYTES,
    )
    products = [operator.splits for operator in plan.operators if operator.type == "MatMul"]
    assert len(products) == LAYERS
    assert all(ACROSS in examples for examples, _, _ in products)
    assert all(ACROSS not in columns + rows for _, columns, rows in products)
    assert any(WITHIN in columns + rows for _, columns, rows in products)
