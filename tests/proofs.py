"""Rows of parametrised tests that repeat a proof with other seeds, models or sizes.

``make test`` leaves them out, since a row of each kind stays; ``make proofs`` runs them.
"""

from __future__ import annotations

from typing import Any

import pytest

__all__ = ["proof"]


def proof(*values: Any, **options: Any) -> Any:
    """``pytest.param(*values, **options)`` with the marker ``proof``."""
    return pytest.param(*values, marks=pytest.mark.proof, **options)
