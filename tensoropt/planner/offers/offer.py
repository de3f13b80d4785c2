"""The base class of offers: strategies of one kind for a step."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property

from tensoropt.plan.plan import Plan
from tensoropt.plan.point_peak import PointPeak
from tensoropt.planner.request import Request

__all__ = ["PIPELINE", "Offer", "Points"]

Points = list[tuple[int, int]]
"""The bytes of a device, as the search adds them up, and the predicted nanoseconds of a step, as it
is executed."""

PIPELINE = "stages"
"""The kind of the offers in which microbatches pass through stages."""


class Offer(ABC):
    """Strategies of one kind: a frontier, any point of which can be planned.

    Steps are those that are executed. `price_of` predicts each of them; `points` may interpolate.

    Attributes:
        request: the step, after the transformations of this offer.
        kind: the name of its space, such as "whole batch" or "stages".
    """

    request: Request
    kind: str

    @property
    @abstractmethod
    def points(self) -> Points:
        """The points of all strategies, even if they do not fit the memory, by ascending memory.
        Their steps may be interpolated."""

    @abstractmethod
    def peaks(self, operators: int) -> list[PointPeak | None]:
        """Return the predicted peak of each of `points`; None where it is unknown.

        Peaks of dry runs that are known when it is called count, and correct the others.

        Args:
            operators: approximate number of operators in all estimates of peaks.
        """

    @abstractmethod
    def price_of(self, number: int) -> int:
        """Return the predicted nanoseconds of a step of one of `points`, not interpolated."""

    @abstractmethod
    def way_of(self, number: int) -> str:
        """Describe one of `points` in a few words, such as "2 stages, 8 microbatches"."""

    @abstractmethod
    def plan(self, option: str) -> Plan:
        """Return the plan of the fastest strategy whose memory and peak fit.

        Raises:
            InfeasibleError: no strategy fits.
            Exception: no strategy can be executed; it is the error of the first of them.
        """

    @abstractmethod
    def plan_of(self, number: int, option: str) -> Plan:
        """Return the plan of one of `points`.

        Raises:
            Exception: the point cannot be executed.
        """

    def number_of(self, plan: Plan) -> int | None:
        """Return the number of a plan of this offer among `points`; None if it is none of them."""
        for number, (memory, _) in enumerate(self.points):
            if memory == plan.memory_bytes and self.price_of(number) == plan.executed_nanoseconds:
                return number
        return None

    @property
    def fitting(self) -> list[int]:
        """The numbers of the points that fit the memory, the fastest first."""
        usable = self.request.usable_bytes(self.request.devices)
        points = self.points
        fits = [number for number, (memory, _) in enumerate(points) if memory <= usable]
        return sorted(fits, key=lambda number: points[number][1])

    @cached_property
    def price(self) -> int | None:
        """The price of the fastest point that fits; None if no point fits."""
        fitting = self.fitting
        return self.price_of(fitting[0]) if fitting else None

    @property
    def allowed_price(self) -> int:
        """The price of the fastest point whose peak of memory fits, too. It may take dry runs.

        It is only asked for if a point fits. In this class it is `price`: a subclass that can
        predict peaks before it makes a plan overrides it.

        Raises:
            InfeasibleError: no peak fits.
        """
        assert self.price is not None, "a point fits"
        return self.price

    @property
    @abstractmethod
    def known_price(self) -> int | None:
        """The price of a strategy whose peak fits; None if none is known without long dry runs."""

    @property
    def complexity(self) -> tuple[bool, ...]:
        """The order of offers that are about as fast: the least one is planned."""
        return (
            self.kind == PIPELINE,
            self.kind != PIPELINE and self.is_staged,
            bool(self.request.rewrites),
            self.request.keeps_less,
            self.request.microbatches > 1,
            self.request.shares is not None,
            self.request.units is not None,
        )

    @property
    def is_staged(self) -> bool:
        """Whether devices run different operators."""
        return False
