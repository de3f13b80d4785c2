"""Other readings of the paper's memory: copies that tensor reuse saves, and layers as operators."""

from __future__ import annotations

from tensoropt.cost.memory import Footprint, MemoryUse
from tensoropt.cost.model import ClusterCostModel

__all__ = ["KeptCopies", "KeptOutputs"]


class KeptCopies(ClusterCostModel):
    """A cluster's costs, with the memory of parameters and of every copy kept for backward.

    Equation 1 says that m_t is of temporary tensors, "e.g., tensors for use in backward
    propagation". Read so, a tensor that nothing reads again takes none, and one that is read in two
    layouts takes both, unless it is reused. The paper's other reading, every output once, knows no
    copies, so there is nothing to reuse in it.
    """

    __slots__ = ()

    def operator_memory(self, footprint: Footprint, /) -> MemoryUse:
        """See `tensoropt.cost.model.CostModel`."""
        kept = footprint.variable_bytes + footprint.kept_bytes
        kept += footprint.moved_bytes + footprint.gathered_bytes
        return MemoryUse(kept, footprint.output_bytes - footprint.kept_bytes)


class KeptOutputs(ClusterCostModel):
    """A cluster's costs, with the memory of parameters and of the outputs that are said to be kept.

    With those of layers (`reproduction.paper.layers.kept_by_layers`) an operator is a layer, as in
    the paper's Table 1.
    """

    __slots__ = ()

    def operator_memory(self, footprint: Footprint, /) -> MemoryUse:
        """See `tensoropt.cost.model.CostModel`."""
        return MemoryUse(footprint.variable_bytes + footprint.gathered_bytes + footprint.kept_bytes)
