"""Amounts in the form in which messages print them."""

from __future__ import annotations

__all__ = ["bytes_of", "devices_of", "mebibytes_of", "quantity_of"]


def devices_of(count: int) -> str:
    """A number of devices."""
    return "1 device" if count == 1 else f"{count} devices"


def bytes_of(count: int) -> str:
    """Memory, in bytes and in MiB."""
    return f"{count:,} bytes ({count / 2**20:.1f} MiB)"


def mebibytes_of(count: int) -> str:
    """Memory in MiB, with a decimal, or with two digits below 1 MiB."""
    mebibytes = count / 2**20
    return f"{mebibytes:,.1f} MiB" if mebibytes >= 1 else f"{mebibytes:.2g} MiB"


def quantity_of(value: float) -> str:
    """A number of any size, with four digits, or without decimals from 1000 on."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
