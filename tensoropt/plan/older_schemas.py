"""Plans of older schemas, as values of the current one."""

from __future__ import annotations

from typing import Any

from tensoropt.plan.ways import way

__all__ = ["SCHEMA", "in_current_schema"]

SCHEMA = 15

_FIELDS: dict[int, dict[str, Any]] = {
    2: {
        "validation": None,
        "executed_nanoseconds": None,
        "network_nanoseconds": None,
        "epsilon": 0.0,
        "within": None,
    },
    3: {"reshardings": []},
    4: {"batch_norm": "global"},
    5: {"digest": None},
    6: {"microbatches": 1},
    7: {"stages": [], "schedule": None},
    9: {"copies": 1},
    10: {"rewrites": []},
    11: {"fewer_devices": []},
    12: {"peak_is_estimated": False, "frontier_ways": [], "looked_at": ""},
    13: {"compression": None},
    14: {"details": None},
}
"""The fields that each schema added, with their values in older plans."""


def in_current_schema(values: dict[str, Any]) -> dict[str, Any]:
    """A plan's values with the fields that its schema lacks.

    Plans of schema 10 to 14 have peaks of some points only. They are left out: points that are
    shown partly by peaks and partly by sums would have no order.
    """
    version = values.get("schema")
    if type(version) is not int or not 1 <= version < SCHEMA:
        return values
    added = [fields for schema, fields in _FIELDS.items() if schema > version]
    lacked = {name: value for fields in added for name, value in fields.items()}
    return {**lacked, **_with_ways(values), "frontier_peaks": [], "schema": SCHEMA}


def _with_ways(values: dict[str, Any]) -> dict[str, Any]:
    """An older plan's values, with the substitutions of each point as its way.

    Older plans have the whole batch. A value of another type stays, and is refused later.
    """
    substitutions = values.get("frontier_rewrites")
    if not isinstance(substitutions, list) or not all(
        isinstance(names, list) and all(isinstance(name, str) for name in names)
        for names in substitutions
    ):
        return values
    rest = {name: value for name, value in values.items() if name != "frontier_rewrites"}
    return {**rest, "frontier_ways": [way(names) for names in substitutions]}
