"""Other systems' strategies as solvers, by the names that ``algorithm=`` takes."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from reproduction.baselines import mesh_tensorflow, optcnn, tofu, tofu_recursive
from reproduction.baselines.brute_force import brute_force
from tensoropt.search.solvers import GraphSolver, baseline_solver

__all__ = ["SOLVERS"]

SOLVERS: Mapping[str, GraphSolver] = MappingProxyType(
    {
        "optcnn": baseline_solver(optcnn.solve),
        "tofu": baseline_solver(tofu.solve),
        "tofu_recursive": baseline_solver(tofu_recursive.solve),
        "mesh_tensorflow": baseline_solver(lambda problem, _: mesh_tensorflow.solve(problem)),
        "brute_force": baseline_solver(lambda problem, _: brute_force(problem.problem)),
    }
)
"""The module attribute in which `tensoropt.search.solvers` looks for these solvers."""
