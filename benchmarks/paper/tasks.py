"""Which frontiers the paper's figures are made of: one task each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any

__all__ = [
    "ALGORITHMS",
    "FIGURE_6_MODELS",
    "FIGURE_7_NETWORKS",
    "FIGURE_7_SINGLE_MACHINE",
    "FIGURE_7_SIZES",
    "FIGURE_8_DEVICES",
    "FIGURE_8_MODELS",
    "TEST_BED",
    "Task",
    "all_tasks",
    "figure_6",
    "figure_7",
    "figure_8",
    "searches",
]

TEST_BED = "2x8-v100"
_ALL = 16

ALGORITHMS = {
    "ft": "TensorOpt",
    "mesh_tensorflow": "Mesh-TensorFlow",
    "data_parallel": "Data Parallel",
    "optcnn": "OptCNN",
    "tofu": "ToFu",
}
"""Names of solvers, and what the paper calls them."""

FIGURE_6_MODELS = ("rnn", "wide_resnet", "transformer", "vgg16")
FIGURE_7_SIZES = ("transformer_half", "transformer", "transformer_double")
FIGURE_7_NETWORKS = {
    "2x8-v100-no-rdma": "no RDMA",
    "2x8-v100": "RDMA",
    "2x8-v100-4x-rdma": "4x RDMA",
}
FIGURE_7_SINGLE_MACHINE = {"8-v100": "NVLink", "8-v100-pcie": "PCIe"}
FIGURE_8_MODELS = ("wide_resnet", "transformer")
FIGURE_8_DEVICES = (4, 8, 16)
_FIGURE_8_ALGORITHMS = ("ft", "data_parallel", "optcnn", "tofu")


@dataclass(frozen=True, slots=True, order=True)
class Task:
    """One frontier: what a solver finds for a model on some devices of a cluster.

    Attributes:
        model: a name of `benchmarks.paper.models.MODELS`.
        algorithm: a name of `tensoropt.search.solvers.SOLVERS`.
        cluster: a name of `tensoropt.cost.cluster.cluster_names`.
        devices: how many of its devices.
        reuse: whether strategies may keep one copy of a resharded tensor and make the other again
            (section 4.2), and memory is that of all copies kept, not of every output once.
        sharded_storage: whether weights may be stored otherwise than their operators read them,
            which is not in the paper.
    """

    model: str
    algorithm: str = "ft"
    cluster: str = TEST_BED
    devices: int = _ALL
    reuse: bool = False
    sharded_storage: bool = False

    @property
    def name(self) -> str:
        """For files and messages."""
        kind = f"{self.algorithm}-reuse" if self.reuse else self.algorithm
        kind += "-sharded-storage" if self.sharded_storage else ""
        return f"{self.model}-{kind}-{self.cluster}-{self.devices}"

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)


def figure_6() -> Iterator[Task]:
    """Every system on 16 devices; of VGG16 our frontier alone; ours with tensor reuse."""
    for model, algorithm in product(FIGURE_6_MODELS, ALGORITHMS):
        if model != "vgg16" or algorithm == "ft":
            yield Task(model, algorithm)
    for model in FIGURE_6_MODELS:
        yield Task(model, reuse=True)


def figure_7() -> Iterator[Task]:
    """Our frontier of the Transformer at several sizes and on several networks."""
    for model in FIGURE_7_SIZES:
        yield Task(model)
    for cluster in FIGURE_7_NETWORKS:
        yield Task("transformer", cluster=cluster)
    for cluster in FIGURE_7_SINGLE_MACHINE:
        yield Task("transformer", cluster=cluster, devices=8)


def figure_8() -> Iterator[Task]:
    """Fewer devices of the test bed."""
    for model, devices, algorithm in product(
        FIGURE_8_MODELS, FIGURE_8_DEVICES, _FIGURE_8_ALGORITHMS
    ):
        yield Task(model, algorithm, devices=devices)


def searches() -> tuple[Task, ...]:
    """Those that Table 3 times, in the order of its columns, and VGG16."""
    return tuple(Task(model) for model in ("wide_resnet", "rnn", "transformer", "vgg16"))


def all_tasks() -> tuple[Task, ...]:
    """Every task once, those that are timed first."""
    return tuple(dict.fromkeys((*searches(), *figure_6(), *figure_7(), *figure_8())))
