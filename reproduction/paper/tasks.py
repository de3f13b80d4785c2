"""The frontiers in the paper's figures, as tasks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
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
    "NO_STRATEGY",
    "SENSITIVITY",
    "TEST_BED",
    "Task",
    "all_tasks",
    "eliminations",
    "figure_6",
    "figure_7",
    "figure_8",
    "searches",
    "sensitivity",
]

TEST_BED = "2x8-v100"
_ALL = 16

ALGORITHMS = {
    "ft": "TensorOpt",
    "mesh_tensorflow": "Mesh-TensorFlow",
    "mesh_tensorflow_free": "Mesh-TensorFlow, a name for each layer",
    "data_parallel": "Data Parallel",
    "optcnn": "OptCNN",
    "tofu": "ToFu",
}
"""Names of solvers, with their names in the paper; Mesh-TensorFlow has a second reading."""

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
NO_STRATEGY = "knew no strategy"
"""The message of a search that ends before it has a strategy."""
SENSITIVITY = (0.75, 1.25)
"""Factors of the links' bandwidth with which claims are judged again."""


@dataclass(frozen=True, slots=True, order=True)
class Task:
    """One frontier: a solver's result for a model on some devices of a cluster.

    Attributes:
        model: a name of `reproduction.paper.models.MODELS`.
        algorithm: a name that `tensoropt.search.solvers.solver` knows.
        cluster: a name of `tensoropt.cost.cluster.cluster_names`.
        devices: number of its devices.
        reuse: whether strategies may keep one copy of a resharded tensor and make the other copies
            again (section 4.2); memory then counts all kept copies instead of every output once.
        sharded_storage: whether weights may be stored in another layout than their operators read,
            which is not in the paper.
        layers: whether memory counts the outputs that layers keep (Table 1) instead of those of
            TensorFlow's operators.
        links: factor by which all links are faster than the test bed's.
    """

    model: str
    algorithm: str = "ft"
    cluster: str = TEST_BED
    devices: int = _ALL
    reuse: bool = False
    sharded_storage: bool = False
    layers: bool = False
    links: float = 1.0

    @property
    def name(self) -> str:
        """The task's name in files and messages."""
        kind = f"{self.algorithm}-reuse" if self.reuse else self.algorithm
        kind += "-sharded-storage" if self.sharded_storage else ""
        kind += "-layers" if self.layers else ""
        kind += "" if self.links == 1 else f"-links-{self.links:g}"
        return f"{self.model}-{kind}-{self.cluster}-{self.devices}"

    def to_json(self) -> dict[str, Any]:
        """The task as JSON values."""
        return asdict(self)


def figure_6() -> Iterator[Task]:
    """The tasks of Figure 6.

    All systems run on 16 devices, for the RNN also with layers as operators. VGG16 has only our
    frontier and data parallelism. Our frontiers also come with tensor reuse and with sharded
    storage.
    """
    for model, algorithm in product(FIGURE_6_MODELS, ALGORITHMS):
        if model != "vgg16" or algorithm in ("ft", "data_parallel"):
            yield Task(model, algorithm)
    for algorithm in ALGORITHMS:
        yield Task("rnn", algorithm, layers=True)
    for algorithm in ("ft", "mesh_tensorflow", "mesh_tensorflow_free", "data_parallel"):
        yield Task("wide_resnet_50", algorithm)
    for model in FIGURE_6_MODELS:
        yield Task(model, reuse=True)
    yield Task("rnn", sharded_storage=True)
    yield Task("transformer_half", "data_parallel")  # the Transformer-S of Table 4


def figure_7() -> Iterator[Task]:
    """The tasks of Figure 7: our frontier of the Transformer at several sizes and on several
    networks."""
    for model in FIGURE_7_SIZES:
        yield Task(model)
    for cluster in FIGURE_7_NETWORKS:
        yield Task("transformer", cluster=cluster)
    for cluster in FIGURE_7_SINGLE_MACHINE:
        yield Task("transformer", cluster=cluster, devices=8)


def figure_8() -> Iterator[Task]:
    """The tasks of Figure 8: fewer devices of the test bed."""
    for model, devices, algorithm in product(
        FIGURE_8_MODELS, FIGURE_8_DEVICES, _FIGURE_8_ALGORITHMS
    ):
        yield Task(model, algorithm, devices=devices)


def searches() -> tuple[Task, ...]:
    """The timed searches of Table 3, in the order of its columns, and VGG16."""
    return tuple(Task(model) for model in ("wide_resnet", "rnn", "transformer", "vgg16"))


def eliminations() -> tuple[Task, ...]:
    """The tasks of Table 3's rows as printed: FT-Elimination, and FT-LDP without our bounds."""
    models = ("rnn", "transformer", "wide_resnet")
    return tuple(
        Task(model, algorithm) for model in models for algorithm in ("ft_elimination", "ft_ldp")
    )


def all_tasks() -> tuple[Task, ...]:
    """All tasks once, with the timed ones first."""
    timed = (*searches(), *eliminations())
    return tuple(dict.fromkeys((*timed, *figure_6(), *figure_7(), *figure_8())))


def sensitivity(links: float) -> dict[Task, Task]:
    """For all tasks of Figures 6 to 8, the same tasks with other links."""
    figures = dict.fromkeys((*figure_6(), *figure_7(), *figure_8()))
    return {task: replace(task, links=links) for task in figures}
