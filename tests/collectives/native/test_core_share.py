"""Ranks of a group that is not all of the job still share the machine's cores with the others."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from collectives.native import transport


@pytest.mark.parametrize(("cores", "ranks", "spins"), [(2, 4, False), (4, 4, True), (8, 4, True)])
def test_whether_a_rank_waits_awake_depends_on_all_ranks_of_the_machine(
    cores: int, ranks: int, spins: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    everyone = SimpleNamespace(local_size=lambda: ranks)
    monkeypatch.setattr(transport, "world", lambda: everyone)
    monkeypatch.setattr(transport, "available_cores", lambda: cores)
    assert transport.core_share() == cores / ranks
    assert (transport.spin_seconds() > 0) == spins
