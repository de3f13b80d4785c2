"""Batch normalisation: elementwise, except for the statistics of the batch in training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tensoropt.tdl.derivation import InnerCollective
from tensoropt.tdl.expression import Expression, Literal, Opaque, Operand, elementwise, tensor
from tensoropt.tdl.operator_type import OperatorType
from tensoropt.tdl.ops.subscripts import WHOLE
from tensoropt.tdl.registry import describe, record
from tensoropt.tensor_spec import TensorSpec

__all__: list[str] = []

Outputs = tuple[TensorSpec, ...]
Shape = tuple[int, ...]

normalise = elementwise("normalise", operations=4)


def _channel(rank: int, data_format: str) -> int:
    return 1 if data_format.startswith("NC") else rank - 1


def _names(rank: int, channel: int) -> list[str]:
    space = iter(("z", "y", "x")[5 - rank :])
    return ["b" if d == 0 else "c" if d == channel else next(space) for d in range(rank)]


def _empty(output: TensorSpec, number: int) -> Any:
    """The description of an output that is empty, or that only the gradient kernel reads."""
    names = [f"r{number}_{d}" for d in range(len(output.shape))]
    return tensor(names, lambda *_: Literal(0))


def _training_splits(attributes: Mapping[str, object]) -> tuple[str, ...]:
    """The indices over which statistics are taken in training.

    If one is split, `tensoropt.execution.rules.batch_norm` combines the devices' statistics.
    """
    return ("b", "z", "y", "x") if attributes.get("is_training", True) else ()


def _statistics_collectives(
    split: frozenset[str], inputs: Sequence[Shape], outputs: Sequence[Shape]
) -> list[InnerCollective]:
    """Devices gather their means and variances forward, and add up two gradients backward."""
    del split, inputs
    elements = 2 * outputs[1][0]
    return [
        InnerCollective("allgather", elements, 1),
        InnerCollective("allreduce", elements, 1, backward=1),
    ]


def _averaged_statistics(attributes: Mapping[str, object]) -> tuple[int, ...]:
    """The outputs of statistics, if each device normalises by its own.

    They are averages over the devices, so each device has a partial sum of them.
    """
    return (1, 2, 3, 4) if attributes.get("_local_statistics") else ()


@describe(
    "FusedBatchNorm",
    "FusedBatchNormV2",
    "FusedBatchNormV3",
    spelled_out=_training_splits,
    inner_collectives=_statistics_collectives,
    partial_outputs=_averaged_statistics,
)
def fused_batch_norm(
    x: Operand,
    scale: Operand,
    offset: Operand,
    mean: Operand,
    variance: Operand,
    *,
    outputs: Outputs,
    is_training: bool = True,
    data_format: str = "NHWC",
    _local_statistics: bool = False,
) -> Any:
    """In training, the statistics are those of the whole batch.

    With ``_local_statistics`` (see `tensoropt.graph.batch_norm`) a device normalises by the
    statistics of its shard; the returned statistics are averages over the devices.
    """
    del _local_statistics  # the same indices can be split
    channel = _channel(x.rank, data_format)
    given = mean.shape == scale.shape

    def statistics(c: Expression, *, of: str) -> Expression:
        place = tuple(c if d == channel else WHOLE for d in range(x.rank))
        old = (mean[c], variance[c]) if given else ()
        return Opaque(of)(x[place], *old)

    def known(c: Expression, *, of: str) -> Expression:
        return mean[c] if of == "mean" else variance[c]

    value = statistics if is_training else known

    def element(*i: Expression) -> Expression:
        c = i[channel]
        moments = (value(c, of="mean"), value(c, of="variance"))
        return normalise(x[i], *moments, scale[c], offset[c])

    means = tensor(["c"], lambda c: value(c, of="mean"))
    variances = tensor(["c"], lambda c: value(c, of="variance"))
    found = [tensor(_names(x.rank, channel), element), means, variances, means, variances]
    return (*found, *(_empty(output, 5) for output in outputs[5:]))


@describe("FusedBatchNormGrad", "FusedBatchNormGradV2", "FusedBatchNormGradV3")
def fused_batch_norm_gradient(
    gradient: Operand,
    x: Operand,
    scale: Operand,
    mean: Operand,
    variance: Operand,
    *_reserved: Operand,
    outputs: Outputs,
    data_format: str = "NHWC",
) -> Any:
    channel = _channel(x.rank, data_format)

    def of_channel(c: Expression) -> Any:
        place = tuple(c if d == channel else WHOLE for d in range(x.rank))
        return Opaque("BatchNormGrad")(gradient[place], x[place], scale[c], mean[c], variance[c])

    def element(*i: Expression) -> Expression:
        rest = tuple(index for d, index in enumerate(i) if d != channel)
        value: Expression = of_channel(i[channel])[rest]
        return value

    by_channel = tensor(["c"], of_channel)
    found = [tensor(_names(x.rank, channel), element), by_channel, by_channel]
    return (*found, *(_empty(output, n) for n, output in enumerate(outputs[3:], 3)))


record(
    "FusedBatchNorm",
    "FusedBatchNormV3",
    facts=OperatorType(onednn=True, outputs_for_gradient=True, rule="batch norm", uneven_rule=True),
)
record("FusedBatchNormGradV3", facts=OperatorType(onednn=True))
record(
    "FusedBatchNormV2",
    facts=OperatorType(outputs_for_gradient=True, rule="batch norm", uneven_rule=True),
)
