"""The order in which TensorFlow's executor runs the kernels of a graph, on one thread.

What becomes ready and is cheap runs next, in order. Of what is not cheap the last runs in the same
thread if nothing cheap waits there; the rest is handed to the pool, which takes the newest first.
So the order is that of a stack, not of the graph: weights are cut before the layers that read
them, and of two gradients the later one is computed first. What a collective in C++ makes ready is
all handed to the pool.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from tensoropt.cost.peak.device_program import DeviceProgram
from tensoropt.cost.peak.kernel_memory import IN_LINE, MOVE, MOVE_TOGETHER, REWRITTEN

__all__ = ["execution_order", "readers"]


def readers(program: DeviceProgram) -> list[list[tuple[int, int, int]]]:
    """Per kernel who reads it, as the executor tells them: (output, kernel, its input).

    Kernels that are put into the graph anew come last.
    """
    found: list[list[tuple[int, int, int]]] = [[] for _ in program.kernels]
    for rewritten in (False, True):
        for number, kernel in enumerate(program.kernels):
            if (kernel.type in REWRITTEN) == rewritten:
                for place, (source, output) in enumerate(kernel.inputs):
                    found[source].append((output, number, place))
    return found


def _followers(program: DeviceProgram) -> list[list[int]]:
    """Per kernel whom it makes ready, those that read it first."""
    found: list[list[int]] = [[reader for _, reader, _ in those] for those in readers(program)]
    for rewritten in (False, True):
        for number, kernel in enumerate(program.kernels):
            if (kernel.type in REWRITTEN) == rewritten:
                for before in kernel.after:
                    found[before].append(number)
    return found


def execution_order(program: DeviceProgram) -> Iterator[int]:
    """Numbers of the kernels, in the order in which they run."""
    followers = _followers(program)
    waiting = [len(kernel.inputs) + len(kernel.after) for kernel in program.kernels]
    cheap = [kernel.type in IN_LINE for kernel in program.kernels]
    pool: list[int] = []
    here: deque[int] = deque()

    def schedule(ready: list[int]) -> None:
        last = None
        for number in ready:
            if cheap[number]:
                here.append(number)
                continue
            if last is not None:
                pool.append(last)
            last = number
        if last is not None:
            (pool if here else here).append(last)

    schedule([number for number, count in enumerate(waiting) if not count])
    while here or pool:
        number = here.popleft() if here else pool.pop()
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
