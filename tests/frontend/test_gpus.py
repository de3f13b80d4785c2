"""GPUs, as far as a list of names and a driver's answers go: there is none here."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import pytest
import tensorflow as tf

from tensoropt.cost.cluster import load_cluster
from tensoropt.errors import StateError
from tensoropt.frontend.job import gpus
from tensoropt.frontend.job.hardware import Hardware


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Two GPUs of 8 and 6 GiB, and which of them TensorFlow is told to see."""
    seen: list[Any] = []
    sizes = [8 << 30, 6 << 30]

    def device_get(device: Any, number: int) -> int:
        device._obj.value = number
        return 0

    def total_mem(size: Any, device: Any) -> int:
        size._obj.value = sizes[device.value]
        return 0

    driver = SimpleNamespace(
        cuInit=lambda _: 0, cuDeviceGet=device_get, cuDeviceTotalMem_v2=total_mem
    )
    monkeypatch.setattr(ctypes, "CDLL", lambda _: driver)
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: ["first", "second"])
    monkeypatch.setattr(tf.config, "set_visible_devices", lambda *given: seen.append(given))
    return seen


def test_ranks_take_gpus_in_turn_and_share_their_memory(two: list[Any]) -> None:
    assert [gpus.gpu_memory_bytes(rank, 2) for rank in range(2)] == [8 << 30, 6 << 30]
    assert [gpus.gpu_memory_bytes(rank, 3) for rank in range(3)] == [4 << 30, 6 << 30, 4 << 30]
    gpus.see_own_gpu(3)
    assert two == [("second", "GPU")]


def test_plans_are_for_the_memory_of_gpus(two: list[Any]) -> None:
    template = load_cluster("this-machine")
    with_gpus = Hardware((2,), 4, 2**36, gpus.gpu_memory_bytes(1, 2)).cluster(2, template)
    without = Hardware((2,), 4, 2**36).cluster(2, template)
    assert with_gpus.device.memory_bytes == 6 << 30
    assert without.device.memory_bytes == 2**35


def test_gpus_that_were_started_before_are_an_error(
    two: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def started(*_: object) -> None:
        raise RuntimeError("Visible devices cannot be modified after being initialized.")

    monkeypatch.setattr(tf.config, "set_visible_devices", started)
    with pytest.raises(StateError, match="Call init at the top"):
        gpus.see_own_gpu(0)


def test_without_gpus_or_a_driver_nothing_is_known(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gpus.see_own_gpu(0)
    assert gpus.gpu_memory_bytes(0, 2) == 0
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: ["first"])
    assert gpus.gpu_memory_bytes(0, 2) == 0
    assert "give memory_limit_bytes" in capsys.readouterr().err
