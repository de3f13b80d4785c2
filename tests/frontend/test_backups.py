"""The supervisor of a job is told of Keras's backups."""

from __future__ import annotations

from typing import Any

import pytest

import tensoropt as tf
from tensoropt.elastic.rank_variables import CONTROL_LINE, RESTARTS_VARIABLE
from tensoropt.frontend.inputs.batches.counted import CountedBatches
from tensoropt.frontend.keras_models.backups import Backups


class BackupAndRestore:
    """Stands for the callback of tf_keras."""

    saves = 0

    def _backup(self) -> None:
        self.saves += 1


class Own(BackupAndRestore):
    """A script's callback that is made of Keras's."""


@pytest.mark.parametrize("is_list", [True, False])
def test_each_backup_is_told(
    is_list: bool, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    tf.init(devices=1)
    backup, other = Own(), object()
    callbacks: Any = [other, backup] if is_list else backup
    with Backups(object(), {"callbacks": callbacks}).watched():
        backup._backup()
        monkeypatch.setenv(RESTARTS_VARIABLE, "0")
        backup._backup()
    backup._backup()
    assert backup.saves == 3
    assert capfdbinary.readouterr().err.count(CONTROL_LINE) == 1
    with Backups(object(), {}).watched():
        pass


def test_counted_batches_go_on_where_others_were_left() -> None:
    orders = iter(range(100))  # an order for each iterator, like a shuffle's

    def read(data: CountedBatches, batches: int) -> list[int]:
        iterator = iter(data)
        return [next(iterator) for _ in range(batches)]

    class Data:
        """Another order for each iterator."""

        def __iter__(self) -> Any:
            order = next(orders)
            return iter(range(100 * order, 100 * order + 10))

    before = CountedBatches(Data())
    read(before, 10)
    read(before, 4)
    assert (before.iterators, before.batches) == (2, 4)
    orders = iter(range(100))
    after = CountedBatches(Data())
    after.go_on(before.iterators - 1, before.batches)
    assert read(after, 2) == [104, 105]
    assert (after.iterators, after.batches) == (2, 6)

    orders = iter(range(100))
    after = CountedBatches(Data())  # a loop that makes an iterator for each epoch, and one more
    after.go_on_at(2, 10, 4)
    iter(after)
    assert read(after, 2) == [304, 305]
    assert read(after, 2) == [400, 401]
    orders = iter(range(100))
    after = CountedBatches(Data())  # a loop that reads all epochs from one
    after.go_on_at(1, 5, 2)
    assert read(after, 2) == [7, 8]
