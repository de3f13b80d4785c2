"""The order in which TensorFlow's executor runs the kernels of a graph on one thread.

When a kernel ends, the cheap kernels that it makes ready run next, in order. Of the expensive ones,
the last runs next in the same thread if no cheap kernel waits there. The others go to a pool, from
which the newest is taken first. So expensive kernels run newest first: weights are split long
before the layers that read them, and of two gradients the later one is computed first. All kernels
that a collective in C++ makes ready go to the pool.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from tensoropt.cost.peak.device_program import DeviceProgram
from tensoropt.cost.peak.kernel_memory import IN_LINE, MOVE, MOVE_TOGETHER, REWRITTEN

__all__ = ["execution_order", "readers"]


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
    """Yield the numbers of the kernels in the order in which they run."""
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
