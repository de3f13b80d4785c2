"""The cost of a strategy by equations 1 to 3 alone: a certificate for the search.

The checker prices one operator and one edge at a time, for the one configuration of each operator.
It uses no tables, slots or groups of the search, and none of its code. The costs of an operator are
those of its shard. The costs of an edge are those of the cheapest way from the producer's layout of
the tensor to the reader's layout, and of the gradient's way back, if there is a gradient.
`cheapest_way` finds these ways. Layouts are those of a `Strategy`, which execution also uses;
prices are the cost model's. The checker is slow and simple.
"""

from __future__ import annotations

from tests.oracles.certificates.checker.checker import Checker, Cost

__all__ = ["Checker", "Cost"]
