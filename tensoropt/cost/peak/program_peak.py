"""The peak of memory of a program: its kernels run one by one, and every buffer is counted."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from tensoropt.cost.peak.device_program import DeviceProgram, Kernel
from tensoropt.cost.peak.estimated_peak import Peak
from tensoropt.cost.peak.execution_order import execution_order, readers
from tensoropt.cost.peak.fused_memory import fused_memory
from tensoropt.cost.peak.kernel_memory import HOST_CALL, same_memory, temporary_bytes, writes_over
from tensoropt.tdl import operator_type
from tensoropt.tensor_spec import TensorSpec

__all__ = ["program_peak"]

_STAY = frozenset({"variable", "placeholder", "constant"})
_BY_ROW = ("ResourceGather", "ResourceScatter", "ResourceSparseApply")
"""What makes TensorFlow read a variable by copy from then on."""
_SEND = re.compile(r"(^|/)send(_\d+)?$")
"""How messages are called that a pipeline's stages send each other."""


@dataclass(slots=True, eq=False)
class _Buffer:
    """Memory that tensors share.

    Attributes:
        size: in bytes.
        holders: inputs that wait to be read, and whatever keeps it for good.
        foreign: whether it is an array of NumPy's, which no kernel writes over.
    """

    size: int
    holders: int = 0
    foreign: bool = False
    alive: bool = True


@dataclass(slots=True)
class _Memory:
    """What is in use, and the most that was."""

    used: int = 0
    most: int = 0
    at: str = ""
    gone: list[_Buffer] = field(default_factory=list)

    def take(self, size: int, label: str) -> None:
        self.used += size
        if self.used > self.most:
            self.most, self.at = self.used, label

    def give(self, buffer: _Buffer) -> None:
        """Free a buffer; an array of NumPy's goes when the next collective ends."""
        if buffer.foreign:
            self.gone.append(buffer)
        else:
            self.used -= buffer.size

    def collect(self) -> None:
        self.used -= sum(buffer.size for buffer in self.gone)
        self.gone.clear()


def program_peak(program: DeviceProgram) -> Peak:
    """The peak of a step, and what stays between steps: variables, constants, what is fed."""
    run = _Run(program)
    for number in execution_order(program):
        run.kernel(number)
    return Peak(run.memory.most, run.resident, run.memory.at)


def _handle(program: DeviceProgram, source: tuple[int, int]) -> int:
    """The variable whose handle comes from there."""
    number, output = source
    while program.kernels[number].type in ("Identity", "IdentityN"):
        number, output = program.kernels[number].inputs[output]
    return number


class _Run:
    def __init__(self, program: DeviceProgram) -> None:
        self._program = program
        self._buffers: dict[tuple[int, int], _Buffer] = {}
        self._copied = {
            _handle(program, kernel.inputs[0])
            for kernel in program.kernels
            if kernel.type.startswith(_BY_ROW)
        }
        self._counts = [[0] * len(kernel.outputs) for kernel in program.kernels]
        for number, those in enumerate(readers(program)):
            for output, _, _ in those:
                self._counts[number][output] += 1
        self.memory = _Memory()
        self._on_way = 0
        self.resident = program.kept_bytes
        for number, kernel in enumerate(program.kernels):
            if operator_type(kernel.type).role in _STAY:
                size = sum(spec.bytes for spec in kernel.outputs)
                self._buffers[(number, 0)] = _Buffer(size, 1)
                self.resident += size
        self.memory.take(self.resident, "what stays")

    def kernel(self, number: int) -> None:
        """Run one: take its memory, make its outputs, let go of its inputs."""
        kernel = self._program.kernels[number]
        if (number, 0) not in self._buffers:
            if kernel.type != HOST_CALL:
                self._compute(number, kernel)
            elif kernel.steps:
                self._reshard(number, kernel)
            else:
                self._call(number, kernel)
        for output, count in enumerate(self._counts[number]):
            buffer = self._buffers[(number, output)]
            buffer.holders += count
        for source in kernel.inputs:
            self._let_go(self._buffers[source])
        for output in range(len(kernel.outputs)):
            self._settle(self._buffers[(number, output)])

    def _specs(self, kernel: Kernel) -> tuple[TensorSpec, ...]:
        return tuple(self._program.kernels[n].outputs[output] for n, output in kernel.inputs)

    def _compute(self, number: int, kernel: Kernel) -> None:
        read = self._specs(kernel)
        shared = same_memory(kernel, read)
        if (
            kernel.type == "ReadVariableOp"
            and _handle(self._program, kernel.inputs[0]) in self._copied
        ):
            shared = {}
        over = writes_over(kernel)
        taken: set[int] = set()
        temporary = temporary_bytes(kernel, read)
        self.memory.take(temporary, kernel.name)
        for output, spec in enumerate(kernel.outputs):
            if output in shared:
                self._buffers[(number, output)] = self._buffers[kernel.inputs[shared[output]]]
                continue
            for place, target in over:
                buffer = self._buffers[kernel.inputs[place]]
                same = read[place].bytes == spec.bytes and read[place].dtype == spec.dtype
                free = buffer.holders == 1 and not buffer.foreign and place not in taken
                if target == output and same and free:
                    taken.add(place)
                    self._buffers[(number, output)] = buffer
                    break
            else:
                self._buffers[(number, output)] = _Buffer(spec.bytes)
                self.memory.take(spec.bytes, kernel.name)
        self.memory.used -= temporary

    def _reshard(self, number: int, kernel: Kernel) -> None:
        program = self._program
        (spec,) = self._specs(kernel)
        found = fused_memory(spec.shape, spec.itemsize, kernel.steps, program.mesh, program.rank)
        if not found.left_bytes:
            self._buffers[(number, 0)] = self._buffers[kernel.inputs[0]]
        else:
            self._buffers[(number, 0)] = _Buffer(found.left_bytes, foreign=True)
        self.memory.take(found.peak_bytes, kernel.name)
        self.memory.used -= found.peak_bytes - found.left_bytes
        self.memory.collect()

    def _call(self, number: int, kernel: Kernel) -> None:
        """Run Python: it makes arrays; a message is a copy that is on its way until the next."""
        sent = sum(spec.bytes for spec in self._specs(kernel)) if _SEND.search(kernel.name) else 0
        for output, spec in enumerate(kernel.outputs):
            self._buffers[(number, output)] = _Buffer(spec.bytes, foreign=True)
            self.memory.take(spec.bytes, kernel.name)
        self.memory.collect()
        if sent:
            self.memory.take(sent, kernel.name)
            self.memory.used -= self._on_way
            self._on_way = sent

    def _let_go(self, buffer: _Buffer) -> None:
        buffer.holders -= 1
        self._settle(buffer)

    def _settle(self, buffer: _Buffer) -> None:
        """Free what nobody holds."""
        if not buffer.holders and buffer.alive:
            buffer.alive = False
            self.memory.give(buffer)
