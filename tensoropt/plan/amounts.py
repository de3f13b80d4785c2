"""Amounts, as messages print them."""

from __future__ import annotations

__all__ = ["bytes_of", "devices_of"]


def devices_of(count: int) -> str:
    """A number of devices."""
    return "1 device" if count == 1 else f"{count} devices"


def bytes_of(count: int) -> str:
    """Memory, in bytes and in MiB."""
    return f"{count:,} bytes ({count / 2**20:.1f} MiB)"
