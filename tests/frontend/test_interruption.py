"""Ctrl-C where Python cannot raise it comes again a moment later."""

from __future__ import annotations

import signal
import sys
import time
import weakref

import pytest

import tensoropt as tf


class Buffer:
    """An object with a finalizer."""


def test_ctrl_c_in_a_finalizer_is_raised_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    printed: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", printed.append)
    tf.init(devices=2)
    # A shell's background jobs ignore Ctrl-C.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)

    def drop_and_wait() -> None:
        weakref.finalize(Buffer(), signal.raise_signal, signal.SIGINT)
        time.sleep(60)

    try:
        with pytest.raises(KeyboardInterrupt):
            drop_and_wait()
    finally:
        signal.signal(signal.SIGINT, before)
    assert not printed
    # What else cannot be raised is printed as before.
    weakref.finalize(Buffer(), int, "no number")
    assert len(printed) == 1
