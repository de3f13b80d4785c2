"""Garbage collection that is put off, and comes back."""

from __future__ import annotations

import gc

import pytest

from tensoropt.garbage import collected_later


@collected_later()
def _collects() -> bool:
    with collected_later():
        assert not gc.isenabled()
    return gc.isenabled()


def test_nothing_is_collected_inside_and_collections_come_back() -> None:
    assert gc.isenabled()
    assert not _collects()
    assert gc.isenabled()
    with pytest.raises(KeyError), collected_later():
        raise KeyError
    assert gc.isenabled()


def test_a_script_that_collects_nothing_keeps_to_it() -> None:
    gc.disable()
    try:
        assert not _collects()
        assert not gc.isenabled()
    finally:
        gc.enable()
