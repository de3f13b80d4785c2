"""Bytes and times in the unit that fits them, with three digits."""

from __future__ import annotations

__all__ = ["memory", "plural", "time"]

_BYTES = (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10))
_TIMES = (("s", 10**9), ("ms", 10**6), ("us", 10**3))


def memory(count: int) -> str:
    """Bytes: "1.26 GiB", "512 KiB", "3 bytes"."""
    return _in_unit(count, _BYTES, "bytes")


def time(nanoseconds: int) -> str:
    """Nanoseconds: "1.26 s", "19.6 ms", "7 ns"."""
    return _in_unit(nanoseconds, _TIMES, "ns")


def _in_unit(amount: int, units: tuple[tuple[str, int], ...], smallest: str) -> str:
    for name, size in units:
        if abs(amount) >= size:
            value = amount / size
            return f"{value:,.0f} {name}" if abs(value) >= 99.95 else f"{value:.3g} {name}"
    return f"{amount} {smallest}"


def plural(count: int, noun: str, several: str = "") -> str:
    """A number and a noun: "1 layer", "12 layers", or its other plural: "3 strategies"."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {several or f'{noun}s'}"
