"""The peak memory of a program: its kernels run one by one, and every buffer is counted."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from tensoropt.cost.peak.device_program import DeviceProgram, Kernel
from tensoropt.cost.peak.estimated_peak import Peak
from tensoropt.cost.peak.fused_memory import fused_memory
from tensoropt.cost.peak.kernel_memory import (
    HOST_CALL,
    IN_LINE,
    MOVE,
    MOVE_TOGETHER,
    REWRITTEN,
    same_memory,
    temporary_bytes,
    writes_over,
)
from tensoropt.tdl import operator_type
from tensoropt.tensor_spec import TensorSpec

__all__ = ["execution_order", "program_peak"]

_STAY = frozenset({"variable", "placeholder", "constant"})
"""Roles of operators whose output stays in memory between steps."""
_BY_ROW = ("ResourceGather", "ResourceScatter", "ResourceSparseApply")
"""Prefixes of types after which TensorFlow copies the variable whenever it is read."""
_SEND = re.compile(r"(^|/)send(_\d+)?$")
"""Names of the messages that stages of a pipeline send each other."""


@dataclass(slots=True, eq=False)
class _Buffer:
    """Memory that tensors share.

    Attributes:
        size: bytes.
        holders: number of reads that are still to come, plus 1 if it stays in memory.
        foreign: whether it is an array of NumPy, which no kernel writes over.
        alive: whether it is not freed yet.
        repeated: whether ``size`` includes microbatches that are not emitted.
    """

    size: int
    holders: int = 0
    foreign: bool = False
    alive: bool = True
    repeated: bool = False


@dataclass(slots=True)
class _Memory:
    """The memory in use, and its peak."""

    used: int = 0
    most: int = 0
    at: str = ""
    freed_later: list[_Buffer] = field(default_factory=list)

    def take(self, size: int, label: str) -> None:
        self.used += size
        if self.used > self.most:
            self.most, self.at = self.used, label

    def give(self, buffer: _Buffer) -> None:
        """Free a buffer. An array of NumPy is freed when the next collective ends."""
        if buffer.foreign:
            self.freed_later.append(buffer)
        else:
            self.used -= buffer.size

    def collect(self) -> None:
        """Free the arrays of NumPy that are not used any more."""
        self.used -= sum(buffer.size for buffer in self.freed_later)
        self.freed_later.clear()


def program_peak(program: DeviceProgram) -> Peak:
    """Return the peak of a step, and the memory of variables, constants and placeholders."""
    run = _Run(program)
    for number in execution_order(program):
        run.kernel(number)
    return Peak(run.memory.most, run.resident, run.memory.at)


def _handle(program: DeviceProgram, source: tuple[int, int]) -> int:
    """Return the number of the kernel that makes the variable of a handle."""
    number, output = source
    while program.kernels[number].type in ("Identity", "IdentityN"):
        number, output = program.kernels[number].inputs[output]
    return number


class _Run:
    """One run of a program."""

    def __init__(self, program: DeviceProgram) -> None:
        self._program = program
        self._buffers: dict[tuple[int, int], _Buffer] = {}
        self._copied = {
            _handle(program, kernel.inputs[0])
            for kernel in program.kernels
            if kernel.type.startswith(_BY_ROW)
        }
        self._counts = [[0] * len(kernel.outputs) for kernel in program.kernels]
        for number, of_kernel in enumerate(readers(program)):
            for output, _, _ in of_kernel:
                self._counts[number][output] += 1
        self.memory = _Memory()
        self._sent_bytes = 0
        self.resident = program.kept_bytes
        for number, kernel in enumerate(program.kernels):
            if operator_type(kernel.type).role in _STAY:
                size = sum(spec.bytes for spec in kernel.outputs)
                more = program.repeated.get((number, 0), 0)
                size *= 1 + more
                self._buffers[(number, 0)] = _Buffer(size, 1, repeated=more > 0)
                self.resident += size
        self.memory.take(self.resident, "what stays")

    def kernel(self, number: int) -> None:
        """Run a kernel: take memory for its outputs, and release its inputs."""
        kernel = self._program.kernels[number]
        if (number, 0) not in self._buffers:
            if kernel.type != HOST_CALL:
                self._compute(number, kernel)
            elif kernel.steps:
                self._reshard(number, kernel)
            else:
                self._call(number, kernel)
            self._repeat(number, kernel)
        for output, count in enumerate(self._counts[number]):
            buffer = self._buffers[(number, output)]
            buffer.holders += count
        for source in kernel.inputs:
            self._release(self._buffers[source])
        for output in range(len(kernel.outputs)):
            self._free_if_unused(self._buffers[(number, output)])

    def _repeat(self, number: int, kernel: Kernel) -> None:
        """Take memory for the outputs of microbatches that are not emitted."""
        for output, spec in enumerate(kernel.outputs):
            more = self._program.repeated.get((number, output), 0)
            buffer = self._buffers[(number, output)]
            if more and not buffer.repeated:
                buffer.repeated = True
                buffer.size += more * spec.bytes
                self.memory.take(more * spec.bytes, kernel.name)

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
        overwritable = writes_over(kernel)
        taken: set[int] = set()
        temporary = temporary_bytes(kernel, read)
        self.memory.take(temporary, kernel.name)
        for output, spec in enumerate(kernel.outputs):
            if output in shared:
                self._buffers[(number, output)] = self._buffers[kernel.inputs[shared[output]]]
                continue
            for input_number, target in overwritable:
                buffer = self._buffers[kernel.inputs[input_number]]
                source = read[input_number]
                fits = source.bytes == spec.bytes and source.dtype == spec.dtype
                is_free = buffer.holders == 1 and not buffer.foreign and input_number not in taken
                if target == output and fits and is_free:
                    taken.add(input_number)
                    self._buffers[(number, output)] = buffer
                    break
            else:
                self._buffers[(number, output)] = _Buffer(spec.bytes)
                self.memory.take(spec.bytes, kernel.name)
        self.memory.used -= temporary

    def _reshard(self, number: int, kernel: Kernel) -> None:
        program = self._program
        (spec,) = self._specs(kernel)
        memory = fused_memory(spec.shape, spec.itemsize, kernel.steps, program.mesh, program.rank)
        if not memory.left_bytes:
            self._buffers[(number, 0)] = self._buffers[kernel.inputs[0]]
        else:
            self._buffers[(number, 0)] = _Buffer(memory.left_bytes, foreign=True)
        self.memory.take(memory.peak_bytes, kernel.name)
        self.memory.used -= memory.peak_bytes - memory.left_bytes
        self.memory.collect()

    def _call(self, number: int, kernel: Kernel) -> None:
        """Run Python code, which makes arrays. A sent message stays in memory until the next
        one."""
        sent = sum(spec.bytes for spec in self._specs(kernel)) if _SEND.search(kernel.name) else 0
        for output, spec in enumerate(kernel.outputs):
            self._buffers[(number, output)] = _Buffer(spec.bytes, foreign=True)
            self.memory.take(spec.bytes, kernel.name)
        self.memory.collect()
        if sent:
            self.memory.take(sent, kernel.name)
            self.memory.used -= self._sent_bytes
            self._sent_bytes = sent

    def _release(self, buffer: _Buffer) -> None:
        buffer.holders -= 1
        self._free_if_unused(buffer)

    def _free_if_unused(self, buffer: _Buffer) -> None:
        """Free a buffer that nobody reads any more."""
        if not buffer.holders and buffer.alive:
            buffer.alive = False
            self.memory.give(buffer)


def readers(program: DeviceProgram) -> list[list[tuple[int, int, int]]]:
    """Return the readers of each kernel in the executor's order: (output, reader, its input).

    Readers of rewritten types come last.
    """
    readers_of: list[list[tuple[int, int, int]]] = [[] for _ in program.kernels]
    for rewritten in (False, True):
        for number, kernel in enumerate(program.kernels):
            if (kernel.type in REWRITTEN) == rewritten:
                for input_number, (source, output) in enumerate(kernel.inputs):
                    readers_of[source].append((output, number, input_number))
    return readers_of


def _followers(program: DeviceProgram) -> list[list[int]]:
    """Return the kernels that each kernel makes ready. Those that read it come first."""
    followers = [[reader for _, reader, _ in of_kernel] for of_kernel in readers(program)]
    for rewritten in (False, True):
        for number, kernel in enumerate(program.kernels):
            if (kernel.type in REWRITTEN) == rewritten:
                for before in kernel.after:
                    followers[before].append(number)
    return followers


def execution_order(program: DeviceProgram) -> Iterator[int]:
    """Yield the numbers of the kernels in the order in which TensorFlow's executor runs them on one
    thread.

    When a kernel ends, the cheap kernels that it makes ready run next, in order. Of the expensive
    ones, the last runs next in the same thread if no cheap kernel waits there. The others go to a
    pool, from which the newest is taken first. So expensive kernels run newest first: weights are
    split long before the layers that read them, and of two gradients the later one is computed
    first. All kernels that a collective in C++ makes ready go to the pool.
    """
    followers = _followers(program)
    waiting = [len(kernel.inputs) + len(kernel.after) for kernel in program.kernels]
    cheap = [kernel.type in IN_LINE for kernel in program.kernels]
    pool: list[int] = []
    thread_queue: deque[int] = deque()

    def schedule(ready: list[int]) -> None:
        last = None
        for number in ready:
            if cheap[number]:
                thread_queue.append(number)
                continue
            if last is not None:
                pool.append(last)
            last = number
        if last is not None:
            (pool if thread_queue else thread_queue).append(last)

    schedule([number for number, count in enumerate(waiting) if not count])
    while thread_queue or pool:
        number = thread_queue.popleft() if thread_queue else pool.pop()
        yield number
        ready = []
        for follower in followers[number]:
            waiting[follower] -= 1
            if not waiting[follower]:
                ready.append(follower)
        if program.kernels[number].type in (MOVE, MOVE_TOGETHER):
            pool += ready
        else:
            schedule(ready)
