"""The link of a machine: rate, delay and loss of the packets that it sends."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

__all__ = ["Link"]

_UNITS = {
    "rate": {"kbit": Fraction(10**3), "mbit": Fraction(10**6), "gbit": Fraction(10**9)},
    "delay": {"us": Fraction(1, 10**6), "ms": Fraction(1, 10**3), "s": Fraction(1)},
    "loss": {"%": Fraction(1, 100)},
}
_QUEUE_SECONDS = 0.05  # the longest wait for the rate; packets beyond it are dropped
_LEAST_BURST_BYTES = 256_000  # more than the largest packet of an interface, 64 KiB
_BURST_SECONDS = 1e-3  # timers of a loaded system are this late


@dataclass(frozen=True, slots=True)
class Link:
    """What happens to the packets that a machine sends.

    Attributes:
        bits_per_second: the rate; 0 for as fast as the system copies.
        delay_seconds: time that a packet travels, one way.
        loss: share of the packets that is lost.
    """

    bits_per_second: float = 0.0
    delay_seconds: float = 0.0
    loss: float = 0.0

    @classmethod
    def parse(cls, text: str) -> Link:
        """The link of a text such as ``"rate 1gbit delay 1ms loss 5%"``, each part optional.

        Raises:
            ValueError: if a part is another one.
        """
        words = text.split()
        found = dict.fromkeys(_UNITS, 0.0)
        for name, value in zip(words[::2], [*words[1::2], ""], strict=False):
            quantity = re.fullmatch(r"(\d+(?:\.\d+)?)(\D+)", value)
            number, unit = quantity.groups() if quantity else ("", "")
            if unit not in _UNITS.get(name, {}):
                raise ValueError(
                    "a link is described by parts such as 'rate 1gbit', 'delay 1ms' and "
                    f"'loss 5%'. Got {name!r} {value!r}."
                )
            found[name] = float(Fraction(number) * _UNITS[name][unit])
        return cls(found["rate"], found["delay"], found["loss"])

    def __str__(self) -> str:
        parts = [f"rate {self.bits_per_second / 1e6:g}mbit"] if self.bits_per_second else []
        parts += [f"delay {self.delay_seconds * 1e3:g}ms"] if self.delay_seconds else []
        parts += [f"loss {self.loss * 100:g}%"] if self.loss else []
        return " ".join(parts)

    def rate_command(self, device: str) -> list[str]:
        """The command that gives a device this rate."""
        if not self.bits_per_second:
            # A pfifo queue holds packets only where the device itself is slow.
            return ["tc", "qdisc", "replace", "dev", device, "root", "pfifo"]
        burst_bytes = max(_LEAST_BURST_BYTES, self.bits_per_second / 8 * _BURST_SECONDS)
        queue = ["tbf", "rate", f"{self.bits_per_second:.0f}bit", "burst", f"{burst_bytes:.0f}"]
        queue += ["latency", f"{_QUEUE_SECONDS * 1e3:.0f}ms"]
        return ["tc", "qdisc", "replace", "dev", device, "root", *queue]
