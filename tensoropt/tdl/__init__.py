"""Operator types: descriptions in Tofu's tensor description language, and facts about kernels."""

from tensoropt.tdl import ops
from tensoropt.tdl.analysis import replicated, source
from tensoropt.tdl.derivation import Derivation, Halo, Index, InnerCollective
from tensoropt.tdl.description import Description, Piece
from tensoropt.tdl.operator_type import OperatorType
from tensoropt.tdl.registry import (
    Registry,
    derive,
    describe,
    described,
    lookup,
    operator_type,
    types_with,
)

__all__ = [
    "Derivation",
    "Description",
    "Halo",
    "Index",
    "InnerCollective",
    "OperatorType",
    "Piece",
    "Registry",
    "derive",
    "describe",
    "described",
    "lookup",
    "operator_type",
    "ops",
    "replicated",
    "source",
    "types_with",
]
