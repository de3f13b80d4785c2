"""TensorFlow's ``MultiWorkerMirroredStrategy`` with one worker for each rank."""

from __future__ import annotations

import json
import os
import socket
from typing import Any

import tensorflow as tf

from collectives.group import Group

__all__ = ["multi_worker"]


def multi_worker(group: Group, config: Any) -> tuple[Any, str, Any]:
    """The strategy, and the target and configuration of a session of its workers.

    TensorFlow's collectives average gradients over gRPC. Every rank calls.

    Args:
        group: all ranks, on one machine; each is a worker.
        config: configuration of the session, to which the strategy adds options.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    cluster = {"worker": [str(each) for each in group.allgather_object(address)]}
    task = {"type": "worker", "index": group.rank}
    os.environ["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": task})
    strategy = tf.compat.v1.distribute.experimental.MultiWorkerMirroredStrategy()
    config = strategy.update_config_proto(config)
    server = tf.distribute.Server(cluster, "worker", group.rank, config=config)
    return strategy, server.target, config
