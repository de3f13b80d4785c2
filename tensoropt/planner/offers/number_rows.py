"""Rows of numbers as short texts, for the strategies of a frontier, which differ little."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from tensoropt.arrays import Int64Array
from tensoropt.errors import PlanError

__all__ = ["rows_of", "texts_of"]


def texts_of(rows: Int64Array) -> list[str]:
    """Return one text for each row of an int64[rows, columns].

    The first text has all numbers of its row. A later text has ``column:number`` for each column
    whose number differs from that of the row before.
    """
    texts = [" ".join(map(str, rows[0].tolist()))] if len(rows) else []
    for before, row in pairwise(rows):
        columns = np.flatnonzero(row != before)
        changes = zip(columns.tolist(), row[columns].tolist(), strict=True)
        texts.append(" ".join(f"{column}:{number}" for column, number in changes))
    return texts


def rows_of(texts: Sequence[str]) -> Int64Array:
    """Return int64[rows, columns] from the texts that `texts_of` made of it.

    Raises:
        PlanError: if a text changes a column that the first row does not have.
    """
    row = np.array([int(number) for number in texts[0].split()], np.int64)
    rows = [row]
    for text in texts[1:]:
        row = row.copy()
        for change in text.split():
            column, number = map(int, change.split(":"))
            if column >= len(row):
                raise PlanError(
                    f"a row of numbers has {len(row)} columns. Got a change of column {column}; "
                    "search the frontier again."
                )
            row[column] = number
        rows.append(row)
    return np.stack(rows)
