"""Plans as people read them: by layer, in words, with communication, memory and the frontier."""

from __future__ import annotations

from tensoropt.view.build import view_of
from tensoropt.view.data.plan_view import PlanView

__all__ = ["PlanView", "view_of"]
