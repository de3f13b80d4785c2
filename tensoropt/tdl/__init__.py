"""The tensor description language: what each operator is, and how it can be split (Tofu)."""

from tensoropt.tdl import ops
from tensoropt.tdl.analysis import replicated, source
from tensoropt.tdl.derivation import Derivation, Halo, Index, InnerCollective
from tensoropt.tdl.registry import (
    Description,
    Piece,
    Registry,
    derive,
    describe,
    described,
    lookup,
)

__all__ = [
    "Derivation",
    "Description",
    "Halo",
    "Index",
    "InnerCollective",
    "Piece",
    "Registry",
    "derive",
    "describe",
    "described",
    "lookup",
    "ops",
    "replicated",
    "source",
]
