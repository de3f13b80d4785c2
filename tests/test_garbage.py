"""Garbage collection that is put off, and comes back."""

from __future__ import annotations

import gc

import pytest

from tensoropt.garbage import collected_later, importing


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


def test_what_an_import_leaves_is_not_visited_again() -> None:
    gc.unfreeze()
    with importing():
        assert not gc.isenabled()
        module = {"name": [1]}
    try:
        assert gc.isenabled()
        assert gc.get_freeze_count()
        assert not any(module is each for each in gc.get_objects())
    finally:
        gc.unfreeze()
