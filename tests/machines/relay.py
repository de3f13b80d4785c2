"""A cable that delays and loses packets, in user space: kernels without netem have no other one.

    python relay.py NEAR FAR

It makes two network devices; frames that one device sends arrive at the other one. From NEAR to FAR
a frame takes the delay, or is lost. Standard input has a line with the delay in seconds and the
lost share, whenever they change; the cable is gone when it ends. Frames are as large as TCP
segments before they are cut, so the cost is some 20 us for 64 KiB.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import select
import struct
import sys
import time
from collections import deque

__all__: list[str] = []

_SET_DEVICE, _SET_OFFLOAD = 0x400454CA, 0x400454D0
_IS_TAP, _HAS_NO_PREFIX, _HAS_OFFLOAD_HEADER = 0x0002, 0x1000, 0x4000
_CHECKSUMS_AND_SEGMENTS = 0x1 | 0x2 | 0x4
_LARGEST_FRAME_BYTES = 66_000
_AT_A_TIME = 32  # frames of one device before the other one is looked at


def main(near_name: str, far_name: str) -> None:
    """Relay until standard input ends."""
    near, far = _device(near_name), _device(far_name)
    with contextlib.suppress(PermissionError):
        # Ranks keep all cores busy; a cable would not wait for them.
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    delay_seconds = loss = 0.0
    waiting: deque[tuple[float, bytes]] = deque()
    while True:
        timeout = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
        ready, _, _ = select.select([near, far, 0], [], [], timeout)
        if 0 in ready:
            line = os.read(0, 4096)
            if not line:
                return
            delay_seconds, loss = map(float, line.splitlines()[-1].split())
        if far in ready:
            for frame in _frames(far):
                _send(near, frame)
        if near in ready:
            now = time.monotonic()
            arrival = now + delay_seconds
            waiting += [(arrival, frame) for frame in _frames(near) if random.random() >= loss]
        now = time.monotonic()
        while waiting and waiting[0][0] <= now:
            _send(far, waiting.popleft()[1])


def _device(name: str) -> int:
    """Make a network device; a descriptor that reads the frames that it sends."""
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    flags = _IS_TAP | _HAS_NO_PREFIX | _HAS_OFFLOAD_HEADER
    fcntl.ioctl(device, _SET_DEVICE, struct.pack("16sH22x", name.encode(), flags))
    fcntl.ioctl(device, _SET_OFFLOAD, _CHECKSUMS_AND_SEGMENTS)
    return device


def _frames(device: int) -> list[bytes]:
    frames = []
    with contextlib.suppress(BlockingIOError):
        for _ in range(_AT_A_TIME):
            frames.append(os.read(device, _LARGEST_FRAME_BYTES))
    return frames


def _send(device: int, frame: bytes) -> None:
    # The device drops the frame where it is down or full.
    with contextlib.suppress(OSError):
        os.write(device, frame)


if __name__ == "__main__":
    main(*sys.argv[1:])
