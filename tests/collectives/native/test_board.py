"""Short messages through shared memory: each rank gets those of all ranks, round after round."""

from __future__ import annotations

import mmap
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np

from collectives.native import transport
from collectives.native.build import library
from collectives.native.transport_library import SOURCES, loaded

RANKS, ROUNDS, LIMIT_SECONDS = 4, 300, 60.0


def test_each_rank_gets_the_messages_of_all_ranks_in_each_round() -> None:
    functions = loaded(library("collectives", SOURCES))[1]
    memory = mmap.mmap(-1, 64 + functions.collectives_board_bytes(RANKS))
    sizes = np.random.default_rng(1).integers(1, 257, ROUNDS)

    def run(rank: int) -> list[bool]:
        group = SimpleNamespace(rank=rank, size=RANKS, ranks=(0,) * RANKS)
        gather = transport._board(group, functions, memory, 64)  # type: ignore[arg-type]
        correct = []
        for number, size in enumerate(sizes):
            messages = [np.full(size, (number + each) % 256, np.uint8) for each in range(RANKS)]
            received = np.empty(RANKS * size, np.uint8)
            correct.append(gather(messages[rank], received))
            correct.append(bool((received == np.concatenate(messages)).all()))
        long = np.zeros(257, np.uint8)
        return [*correct, not gather(long, np.empty(RANKS * 257, np.uint8))]

    with ThreadPoolExecutor(RANKS) as pool:
        for correct in pool.map(run, range(RANKS), timeout=LIMIT_SECONDS):
            assert all(correct)
