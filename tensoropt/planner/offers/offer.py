"""An offer: strategies of one kind for a step, and what every kind tells of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property

from tensoropt.plan.plan import Plan
from tensoropt.planner.request import Request

__all__ = ["PIPELINE", "Offer", "Points"]

Points = list[tuple[int, int]]
"""Bytes of a device and nanoseconds of a step, as the search adds them up."""

PIPELINE = "stages"
"""The kind of offers whose microbatches pass through stages."""


class Offer(ABC):
    """Strategies of one kind: the points of a frontier, of which each can be planned.

    Points are found and compared within an offer by the sums of the search. Offers are compared
    with each other by `price`, the predicted time of a step as it is executed.

    Attributes:
        request: the step, after the transformations of this offer.
        kind: what the space is called that made it, such as "whole batch" or "stages".
    """

    request: Request
    kind: str

    @property
    @abstractmethod
    def points(self) -> Points:
        """Of all of its strategies, whether they fit the memory or not, by ascending memory."""

    @abstractmethod
    def price_of(self, number: int) -> int:
        """Nanoseconds of a step of one of `points`, as it is executed."""

    @abstractmethod
    def way_of(self, number: int) -> str:
        """What one of `points` is, in a few words, such as "2 stages, 8 microbatches"."""

    @abstractmethod
    def plan(self, option: str) -> Plan:
        """The plan of the fastest strategy whose memory and peak fit.

        Raises:
            InfeasibleError: none fits.
            Exception: none can be executed; why the first of them cannot.
        """

    @abstractmethod
    def plan_of(self, number: int, option: str) -> Plan:
        """The plan of one of `points`.

        Raises:
            Exception: it cannot be executed.
        """

    @property
    def fitting(self) -> list[int]:
        """Numbers of the points that fit the memory, the fastest first."""
        usable = self.request.usable_bytes(self.request.devices)
        points = self.points
        fits = [number for number, (memory, _) in enumerate(points) if memory <= usable]
        return sorted(fits, key=lambda number: points[number][1])

    @cached_property
    def price(self) -> int | None:
        """The price of the fastest point that fits; None where none does."""
        fitting = self.fitting
        return self.price_of(fitting[0]) if fitting else None

    @property
    def allowed_price(self) -> int:
        """The price of what its peak of memory allows, too, which may take dry runs; some point
        fits. Where peaks are known of plans alone, it is `price`.

        Raises:
            InfeasibleError: no peak fits.
        """
        assert self.price is not None, "some point fits"
        return self.price

    @property
    def complexity(self) -> tuple[bool, ...]:
        """Of offers that are as fast, the one is planned that compares as least."""
        return (
            self.kind == PIPELINE,
            self.kind != PIPELINE and self.is_staged,
            bool(self.request.rewrites),
            self.request.keeps_less,
            self.request.microbatches > 1,
        )

    @property
    def is_staged(self) -> bool:
        """Whether devices have different operators."""
        return False
