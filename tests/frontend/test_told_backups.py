"""The supervisor of a job is told of Keras's backups."""

from __future__ import annotations

from typing import Any

import pytest

from tensoropt.elastic.control_lines import CONTROL_LINE, RESTARTS_VARIABLE
from tensoropt.frontend.keras_models.told_backups import told_backups


class BackupAndRestore:
    """Stands for Keras's callback."""

    saves = 0

    def _save_model(self) -> None:
        self.saves += 1


class Own(BackupAndRestore):
    """A script's callback that is made of Keras's."""


@pytest.mark.parametrize("is_list", [True, False])
def test_each_backup_is_told(
    is_list: bool, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    backup, other = Own(), object()
    callbacks: Any = [other, backup] if is_list else backup
    with told_backups(callbacks):
        backup._save_model()
        monkeypatch.setenv(RESTARTS_VARIABLE, "0")
        backup._save_model()
    backup._save_model()
    assert backup.saves == 3
    assert capfdbinary.readouterr().err == CONTROL_LINE
    with told_backups(None):
        pass
