"""What a strategy costs, worked out from equations 1 to 3 alone: a certificate for the search.

One operator and one edge at a time, for the one configuration that each operator has: none of the
search's tables, slots or groups, and none of its code. An operator's costs are those of its shard;
an edge's are those of the cheapest way from the layout in which the tensor is made to that in
which it is read, and, where a gradient comes back, from the gradient's layout at the reader to
that at the producer. Ways are looked for in `cheapest_way`. Layouts are a `Strategy`'s, which are
those that execution has; prices are the cost model's. Slow, and simple.
"""

from __future__ import annotations

from tests.oracles.certificates.checker.checker import Checker, Cost

__all__ = ["Checker", "Cost"]
