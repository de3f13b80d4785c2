"""``preflight``: list the operators of the step that cannot be split, without a search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn

from tensoropt.errors import OptionError
from tensoropt.frontend.job.job import current
from tensoropt.frontend.planning.training_step import step_request
from tensoropt.planner.options.planning_options import PlanningOptions
from tensoropt.planner.options.values import count
from tensoropt.planner.split_check import Check, check
from tensoropt.report.split_check_table import check_table
from tensoropt.report.text_table import write

__all__ = ["preflight"]


def preflight(
    devices: int | None = None,
    *,
    batch_size: int | None = None,
    shapes: Mapping[Any, Sequence[int]] | None = None,
    fetches: Sequence[Any] | None = None,
    **unknown: NoReturn,
) -> Check:
    """List every operator of a training step that cannot be split, the reason, and its cost.

    Nothing is searched and nothing runs.

    Args:
        devices: number of devices to check for; by default the job's.
        batch_size: as for `find_strategy`.
        shapes: as for `find_strategy`.
        fetches: as for `find_strategy`.

    Returns:
        An entry per operator that computes; rank 0 prints those that cannot be split.

    Raises:
        OptionError: for fewer than two devices, or a shape that contradicts its placeholder.
        GraphError: if a placeholder's shape stays unknown.
        LayoutError: if the cluster cannot give a job this number of devices.
    """
    OptionError.refuse(unknown, preflight)
    count("devices", 2 if devices is None else devices)
    job = current()
    options = PlanningOptions(batch_size=batch_size, shapes=shapes, fetches=fetches)
    request = step_request(job, options if job.dry_run is None else job.dry_run.replaced(options))
    result = check(replace(request, devices=job.devices if devices is None else devices))
    if job.group.rank == 0:
        write(check_table(result))
    return result
