"""Tensors from the ranks of one pipeline stage to those of another.

A tensor is sent after its operator and received before its first reader. Both points are in the one
order of the step. A sender waits for receivers of earlier steps at most, so no rank waits for a
later point.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

import tensorflow as tf

from collectives.native.mail import Mail
from collectives.operations.tensor_messages import Envelope, receive_tensors, send_tensors
from tensoropt.execution.stages.stage_ranks import StageRanks
from tensoropt.execution.world.mpi_world import MPIWorld
from tensoropt.graph.operator import Operator, TensorName
from tensoropt.parallel.layout import Layout
from tensoropt.parallel.resharding.transfer import Message, Region, messages, spread
from tensoropt.parallel.strategy import Strategy
from tensoropt.transformations.staged.stage_graph import TRANSFER, StagedStep

__all__ = ["Transfers"]


@dataclass(frozen=True, slots=True, eq=False)
class _Transfer:
    """A tensor that a stage receives from another.

    Attributes:
        name: the operator in the step that receives it.
        tensor: the tensor that is sent.
        source, target: the numbers of the stages.
        shape, dtype: of the whole tensor.
        made: the layout in which the source stage makes it.
        sent: the layout in which it is sent, without partial sums.
        arriving: the layout in which it arrives.
        wanted: the layout that its readers want.
        messages: regions of the tensor with the devices that send and receive them.
        tags: the tag of each message. A tag is unique among the messages that one rank sends
            another in a step.
    """

    name: str
    tensor: TensorName
    source: int
    target: int
    shape: tuple[int, ...]
    dtype: str
    made: Layout
    sent: Layout
    arriving: Layout
    wanted: Layout
    messages: tuple[Message, ...]
    tags: tuple[int, ...]

    def __str__(self) -> str:
        return (
            f"{self.dtype}{list(self.shape)} {self.name} from stage {self.source} {self.sent.dims} "
            f"to stage {self.target} {self.arriving.dims}, then {self.wanted.dims}"
        )


class Transfers:
    """The transfers between the stages of a step; none in a step of one stage.

    Args:
        step: the step.
        stages: the ranks of each stage.
        strategies: the strategy of each stage.
        made: gives the shards of a stage's tensor, on the stage's ranks in this process.
        everyone: see `Pipeline`.
    """

    def __init__(
        self,
        step: StagedStep,
        stages: Sequence[StageRanks],
        strategies: Sequence[Strategy],
        made: Callable[[int, TensorName], list[tf.Tensor]],
        everyone: MPIWorld | None,
    ) -> None:
        self._stages = stages
        self._made = made
        self._everyone = everyone
        self._transfers: dict[str, _Transfer] = {}
        self._by_tensor: dict[str, list[_Transfer]] = {}
        self._here: dict[str, dict[Message, tf.Tensor]] = {}
        sent: Counter[tuple[int, int]] = Counter()
        for operator in step.graph:
            if operator.type == TRANSFER:
                found = self._described(operator, step, strategies, sent)
                self._transfers[found.name] = found
                self._by_tensor.setdefault(found.tensor.operator, []).append(found)
        self._mail = self._mail_with_room()

    def _described(
        self,
        operator: Operator,
        step: StagedStep,
        strategies: Sequence[Strategy],
        sent_between: Counter[tuple[int, int]],
    ) -> _Transfer:
        """The transfer of an operator; counts its messages in ``sent_between``, by the ranks of
        sender and receiver."""
        (tensor,), (spec,) = operator.inputs, operator.outputs
        source, target = step.stage_of[tensor.operator], step.stage_of[operator.name]
        mesh, others = (self._stages[stage].world.mesh for stage in (source, target))
        made = strategies[source].output_slot(tensor).forward
        sent = spread(Layout(made.dims), spec.shape, mesh, made.partial)
        wanted = strategies[target].output_slot(TensorName(operator.name, 0)).forward
        arriving = spread(wanted, spec.shape, others)
        pieces = messages(spec.shape, sent, mesh, arriving, others)
        firsts = [self._stages[stage].world.first for stage in (source, target)]
        tags = []
        for each in pieces:
            pair = firsts[0] + each.source, firsts[1] + each.target
            tags.append(sent_between[pair])
            sent_between[pair] += 1
        return _Transfer(
            operator.name,
            tensor,
            source,
            target,
            spec.shape,
            spec.dtype,
            made,
            sent,
            arriving,
            wanted,
            pieces,
            tuple(tags),
        )

    def lines(self) -> list[str]:
        """One line for each transfer."""
        return list(map(str, self._transfers.values()))

    def of(self, operator: str) -> list[str]:
        """The names of the transfers of an operator's outputs."""
        return [transfer.name for transfer in self._by_tensor.get(operator, ())]

    def send(self, name: str) -> list[tf.Operation]:
        """Send a tensor, if the source stage is in this process. All of the stage's ranks call.

        Returns:
            The operations after which it is sent; none within a process.
        """
        transfer = self._transfers[name]
        here = self._stages[transfer.source]
        if not here.world.ranks:
            return []
        shards = self._made(transfer.source, transfer.tensor)
        steps = here.plan_steps(transfer.shape, transfer.dtype, transfer.made, transfer.sent)
        if steps:
            shards = here.world.reshard(shards, steps, f"{name}/send")
        sent = {}
        with tf.name_scope(name):
            for each in transfer.messages:
                if each.source in here.world.ranks:
                    shard = shards[here.world.ranks.index(each.source)]
                    sent[each] = self._part(transfer, each, shard)
            return self._hand_over(transfer, sent)

    def receive(self, name: str) -> list[tf.Tensor]:
        """The shards of a tensor on the target stage's ranks in this process."""
        transfer = self._transfers[name]
        there = self._stages[transfer.target]
        received: dict[int, dict[Region, tf.Tensor]] = {rank: {} for rank in there.world.ranks}
        with tf.name_scope(name):
            for message, part in self._taken(transfer).items():
                received[message.target][message.region] = part
            shards = [_joined(received[rank], 0) for rank in there.world.ranks]
        steps = there.plan_steps(transfer.shape, transfer.dtype, transfer.arriving, transfer.wanted)
        return there.world.reshard(shards, steps, f"{name}/gather") if steps else shards

    def _part(self, transfer: _Transfer, message: Message, shard: tf.Tensor) -> tf.Tensor:
        """A message's part of the sender's shard."""
        mesh = self._stages[transfer.source].world.mesh
        region = transfer.sent.region(transfer.shape, mesh, message.source)
        pairs = list(zip(message.region, region, strict=True))
        begin = [start - held.start for (start, _), held in pairs]
        size = [stop - start for (start, stop), _ in pairs]
        return tf.slice(shard, begin, size) if size else tf.identity(shard)

    def _hand_over(
        self, transfer: _Transfer, sent: Mapping[Message, tf.Tensor]
    ) -> list[tf.Operation]:
        """Send messages to ranks in other processes, or keep them for ranks in this one."""
        if self._everyone is None:
            self._here[transfer.name] = dict(sent)
            return []
        first = self._stages[transfer.target].world.first
        tags = self._tags(transfer)
        envelopes = [Envelope(first + each.target, tags[each]) for each in sent]
        record = f"send {transfer}"
        watch = self._stages[transfer.source].world.watch_of_messages()
        tensors, group = list(sent.values()), self._everyone.group
        done = send_tensors(tensors, group, envelopes, record, watch, self._mail)
        return [done[-1].op]

    def _taken(self, transfer: _Transfer) -> Mapping[Message, tf.Tensor]:
        """The contents of the messages to ranks in this process."""
        if self._everyone is None:
            return self._here.pop(transfer.name)
        ranks = self._stages[transfer.target].world.ranks
        own = [each for each in transfer.messages if each.target in ranks]
        first, tags = self._stages[transfer.source].world.first, self._tags(transfer)
        received = receive_tensors(
            [tuple(stop - start for start, stop in each.region) for each in own],
            tf.as_dtype(transfer.dtype),
            self._everyone.group,
            [Envelope(first + each.source, tags[each]) for each in own],
            f"receive {transfer}",
            self._stages[transfer.target].world.watch_of_messages(),
            self._mail,
        )
        return dict(zip(own, received, strict=True))

    def _mail_with_room(self) -> Mail | None:
        """The mail within a machine, if it has room for the messages of a step; else None."""
        if self._everyone is None or self._everyone.mail is None:
            return None
        sent: list[tuple[int, int, int]] = []
        for transfer in self._transfers.values():
            source = self._stages[transfer.source].world.first
            target = self._stages[transfer.target].world.first
            itemsize = tf.as_dtype(transfer.dtype).size
            for each in transfer.messages:
                elements = prod(stop - start for start, stop in each.region)
                sent.append((source + each.source, target + each.target, elements * itemsize))
        mail = self._everyone.mail
        return mail if mail.admits(sent) else None

    def _tags(self, transfer: _Transfer) -> dict[Message, int]:
        return dict(zip(transfer.messages, transfer.tags, strict=True))


def _joined(parts: Mapping[Region, tf.Tensor], dim: int) -> tf.Tensor:
    """Join the parts of a tensor along one dimension and all later ones."""
    if len(parts) == 1:
        return next(iter(parts.values()))
    rows: dict[tuple[int, int], dict[Region, tf.Tensor]] = {}
    for region, part in sorted(parts.items(), key=lambda item: item[0]):
        rows.setdefault(region[dim], {})[region] = part
    joined = [_joined(row, dim + 1) for row in rows.values()]
    return tf.concat(joined, dim) if len(joined) > 1 else joined[0]
