"""Other readings of the paper's memory: copies that tensor reuse saves, and layers as operators."""

from __future__ import annotations

from reproduction.paper.testbed import PaperCosts
from tensoropt.cost.memory import Footprint

__all__ = ["KeptCopies", "KeptOutputs"]


class KeptCopies(PaperCosts):
    """A cluster's costs, with the memory of parameters and of each copy kept for the backward pass.

    By equation 1, m_t is the memory of temporary tensors, "e.g., tensors for use in backward
    propagation". In this reading, a tensor that nothing reads again takes no memory, and a tensor
    that is read in two layouts takes memory for both unless it is reused. The paper's other
    reading, every output once, has no copies, so reuse has no effect there.
    """

    __slots__ = ()

    def operator_memory(self, footprint: Footprint, /) -> int:
        """See `tensoropt.cost.model.CostModel`."""
        kept = footprint.variable_bytes + footprint.kept_bytes
        kept += footprint.moved_bytes + footprint.gathered_bytes
        return kept


class KeptOutputs(PaperCosts):
    """A cluster's costs, with the memory of parameters and of a given set of kept outputs.

    With `reproduction.paper.layers.kept_by_layers`, an operator is a layer, as in the paper's Table
    1.
    """

    __slots__ = ()

    def operator_memory(self, footprint: Footprint, /) -> int:
        """See `tensoropt.cost.model.CostModel`."""
        return footprint.variable_bytes + footprint.gathered_bytes + footprint.kept_bytes
