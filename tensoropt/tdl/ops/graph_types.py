"""Operators without a description: they hold or name tensors, read shapes, call or write files."""

from __future__ import annotations

from tensoropt.tdl.operator_type import OperatorType
from tensoropt.tdl.registry import record

__all__: list[str] = []

record(
    "BroadcastGradientArgs", "ConcatOffset", "InvertPermutation", facts=OperatorType(in_line=True)
)
record(
    *("Case", "If", "StatefulPartitionedCall", "StatelessCase", "StatelessIf"),
    *("StatelessWhile", "While"),
    facts=OperatorType(role="calls functions"),
)
record("Const", facts=OperatorType(role="constant", in_line=True))
record("DestroyResourceOp", "IsVariableInitialized", facts=OperatorType(any_layout=True))
record(
    *("FlushSummaryWriter", "MergeV2Checkpoints", "PrintV2", "Save", "SaveSlices", "SaveV2"),
    *("WriteFile", "WriteHistogramSummary", "WriteScalarSummary", "WriteSummary"),
    facts=OperatorType(writes_files=True),
)
record("Gradient", facts=OperatorType(role="names"))
record("NoOp", facts=OperatorType(role="names", in_line=True))
record("Placeholder", facts=OperatorType(role="placeholder", in_line=True))
record("Rank", "Shape", "ShapeN", "Size", facts=OperatorType(role="reads shapes", in_line=True))
record("RefIdentity", facts=OperatorType(value="same"))
record("VarHandleOp", facts=OperatorType(role="variable", in_line=True))
record("VarIsInitializedOp", facts=OperatorType(any_layout=True, in_line=True))
record("Variable", "VariableV2", facts=OperatorType(role="variable"))
