"""Amounts in the form in which messages print them."""

from __future__ import annotations

__all__ = ["bytes_of", "devices_of", "quantity_of"]


def devices_of(count: int) -> str:
    """A number of devices."""
    return "1 device" if count == 1 else f"{count} devices"


def bytes_of(count: int) -> str:
    """Memory, in bytes and in MiB."""
    return f"{count:,} bytes ({count / 2**20:.1f} MiB)"


def quantity_of(value: float) -> str:
    """A number of any size, with four digits, or without decimals from 1000 on."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
