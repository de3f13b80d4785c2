"""The GPU of a rank: which one it is, its memory, and that TensorFlow sees no other."""

from __future__ import annotations

import ctypes
import sys

import tensorflow as tf

from tensoropt.errors import StateError

__all__ = ["gpu_memory_bytes", "gpu_of", "see_own_gpu"]

_DRIVER = "libcuda.so.1"


def gpu_of(local_rank: int) -> str:
    """The number of the GPU that is a rank's, as TensorFlow wants it; empty where there is none.

    A rank of more ranks than GPUs shares one.
    """
    gpus = len(tf.config.list_physical_devices("GPU"))
    return str(local_rank % gpus) if gpus else ""


def gpu_memory_bytes(local_rank: int, local_size: int) -> int:
    """A rank's share of the memory of its GPU, as the driver says; 0 where there is none.

    TensorFlow says it of devices that it has started alone, which is for the script to configure.
    """
    own = gpu_of(local_rank)
    if not own:
        return 0
    sharing = sum(gpu_of(other) == own for other in range(local_size))
    found = _total_bytes(int(own))
    if not found and local_rank == 0:
        sys.stderr.write(
            "tensoropt: plans take devices to have the machine's memory, divided among its ranks, "
            f"since {_DRIVER} does not say that of the GPUs; give memory_limit_bytes\n"
        )
    return found // sharing


def see_own_gpu(local_rank: int) -> None:
    """Let the devices that TensorFlow tells the memory of be those of a rank's sessions.

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
