"""Rows of numbers as short texts: strategies of a frontier differ little from point to point."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from tensoropt.arrays import Int64Array
from tensoropt.errors import PlanError

__all__ = ["rows_of", "texts_of"]


def texts_of(rows: Int64Array) -> list[str]:
    """One text for each row of an int64[rows, columns].

    The first row has all its numbers. A later row has ``column:number`` where it differs from the
    row before.
    """
    texts = [" ".join(map(str, rows[0].tolist()))] if len(rows) else []
    for before, row in pairwise(rows):
        columns = np.flatnonzero(row != before)
        changes = zip(columns.tolist(), row[columns].tolist(), strict=True)
        texts.append(" ".join(f"{column}:{number}" for column, number in changes))
    return texts


def rows_of(texts: Sequence[str]) -> Int64Array:
    """The inverse of `texts_of`, int64[rows, columns].

    Raises:
        PlanError: if a text changes a column that the first row lacks.
    """
    row = np.array([int(number) for number in texts[0].split()], np.int64)
    rows = [row]
    for text in texts[1:]:
        row = row.copy()
        for change in text.split():
            column, number = map(int, change.split(":"))
            if column >= len(row):
                raise PlanError(
                    f"a row of numbers changes its columns. Got column {column} of {len(row)}; "
                    "search the frontier again."
                )
            row[column] = number
        rows.append(row)
    return np.stack(rows)
