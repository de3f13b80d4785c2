"""The GPU of a rank: its number and memory, and hiding the other GPUs from TensorFlow."""

from __future__ import annotations

import ctypes
import sys

import tensorflow as tf

from tensoropt.errors import StateError

__all__ = ["gpu_memory_bytes", "gpu_of", "see_own_gpu"]

_DRIVER = "libcuda.so.1"


def gpu_of(local_rank: int) -> str:
    """The number of a rank's GPU, in TensorFlow's form; empty if there is none.

    If there are more ranks than GPUs, several ranks share a GPU.
    """
    gpus = len(tf.config.list_physical_devices("GPU"))
    return str(local_rank % gpus) if gpus else ""


def gpu_memory_bytes(local_rank: int, local_size: int) -> int:
    """A rank's share of the memory of its GPU, from the driver; 0 if there is none.

    TensorFlow only knows the memory of devices that it has started, and the script must be able to
    configure them before.
    """
    number = gpu_of(local_rank)
    if not number:
        return 0
    sharing = sum(gpu_of(other) == number for other in range(local_size))
    total_bytes = _total_bytes(int(number))
    if not total_bytes and local_rank == 0:
        sys.stderr.write(
            "tensoropt: plans assume the machine's memory, divided among its ranks, for each GPU, "
            f"because {_DRIVER} does not report the GPUs' memory; give memory_limit_bytes\n"
        )
    return total_bytes // sharing


def see_own_gpu(local_rank: int) -> None:
    """Hide the other GPUs, so that TensorFlow reports the memory of the GPU of a rank's sessions.

    Raises:
        StateError: if TensorFlow has started its devices already.
    """
    gpus = tf.config.list_physical_devices("GPU")
    if not gpus:
        return
    try:
        tf.config.set_visible_devices(gpus[int(gpu_of(local_rank))], "GPU")
    except RuntimeError as error:
        raise StateError(
            "each rank takes its own GPU before TensorFlow starts any. Got init after that: "
            f"{error} Call init at the top of the script."
        ) from None


def _total_bytes(number: int) -> int:
    try:
        driver = ctypes.CDLL(_DRIVER)
    except OSError:
        return 0
    device, size = ctypes.c_int(), ctypes.c_size_t()
    failed = (
        driver.cuInit(0)
        or driver.cuDeviceGet(ctypes.byref(device), number)
        or driver.cuDeviceTotalMem_v2(ctypes.byref(size), device)
    )
    return 0 if failed else size.value
