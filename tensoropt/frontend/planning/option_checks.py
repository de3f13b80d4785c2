"""Checks of the arguments of ``find_strategy`` and ``build_execution_graph``."""

from __future__ import annotations

from numbers import Integral, Real

from tensoropt.errors import OptionError
from tensoropt.graph.batch_norm import BATCH_NORMS
from tensoropt.transformations.staged.schedule import SCHEDULES

__all__ = [
    "check_engine",
    "check_options",
    "check_point",
    "check_schedule",
    "check_validate",
]

_OPTIONS = ("mini_time", "mini_parallelism", "mini_cost", "profiling")
_ENGINES = ("tensorflow",)
_VALIDATED_ALGORITHMS = ("ft", "mesh_tensorflow", "brute_force")
"""The algorithms that find several strategies."""


def check_options(
    option: str,
    algorithm: str,
    epsilon: float,
    memory_limit_bytes: int | None,
    batch_norm: str = "global",
    search_seconds: float | str | None = None,
    microbatches: int | None = None,
    pipeline: bool | int | str | None = None,
    steps: int | None = None,
    rewrite: bool | None = None,
) -> None:
    """Check arguments of ``find_strategy``.

    Raises:
        OptionError: an unknown option, algorithm or kind of batch normalisation; a negative
            epsilon, or an epsilon for another algorithm than "ft"; a memory limit below 1; seconds
            not above 0; microbatches that are not a whole number from 1; a pipeline that is not a
            number of stages, or a pipeline with an argument that excludes it.
    """
    if option not in _OPTIONS:
        raise OptionError.one_of("an option", option, _OPTIONS)
    if algorithm != "ft":
        from tensoropt.search.solvers import solver

        solver(algorithm)  # raises for an unknown algorithm
    _check_epsilon(epsilon, algorithm)
    _check_seconds(search_seconds)
    if steps is not None:
        _check_count("steps", steps)
    if batch_norm not in BATCH_NORMS:
        raise OptionError.one_of("a batch_norm", batch_norm, BATCH_NORMS)
    _check_microbatches(microbatches)
    _check_pipeline(pipeline, microbatches, algorithm)
    if rewrite and algorithm != "ft":
        raise OptionError(
            "rewritten graphs are searched by algorithm='ft'. Got rewrite=True with "
            f"algorithm={algorithm!r}; leave one of the two out."
        )
    if memory_limit_bytes is not None:
        _check_count("memory_limit_bytes", memory_limit_bytes)


def check_schedule(schedule: str | None, pipeline: bool | int | str) -> None:
    """Check the order of a pipeline's microbatches.

    Args:
        schedule: the order; None if the user gave none.
        pipeline: the number of stages to search; False for no stages.

    Raises:
        OptionError: an unknown schedule, or a schedule without stages.
    """
    if schedule is None:
        return
    if schedule not in SCHEDULES:
        raise OptionError.one_of("a schedule", schedule, SCHEDULES)
    if pipeline is False or pipeline == 1:
        raise OptionError(
            "schedule is the order in which microbatches pass the stages of a pipeline. Got "
            f"schedule={schedule!r} where no stages are searched; add a pipeline such as "
            "pipeline='auto', or leave it out."
        )


def check_engine(engine: str) -> None:
    """Check the name of an engine.

    Raises:
        OptionError: if there is no such engine.
    """
    if engine not in _ENGINES:
        raise OptionError.one_of("an engine", engine, _ENGINES)


def _check_epsilon(epsilon: float, algorithm: str) -> None:
    if not epsilon >= 0:
        raise OptionError(
            f"epsilon is at least 0. Got {epsilon!r}; give a share such as 0.01, or leave it out "
            "for the exact frontier."
        )
    if epsilon and algorithm != "ft":
        raise OptionError(
            f"epsilon is for algorithm='ft', which proves the gap of its frontier. Got "
            f"epsilon={epsilon!r} for {algorithm!r}; leave one of the two out."
        )


def _check_seconds(seconds: float | str | None) -> None:
    if seconds is None or seconds == "auto":
        return
    if isinstance(seconds, bool) or not (isinstance(seconds, Real) and seconds > 0):
        raise OptionError(
            f"search_seconds is a number above 0, or None. Got {seconds!r}; give seconds such as "
            "60, None for no limit, or 'auto'."
        )


def _check_microbatches(count: int | None) -> None:
    if count is None:
        return
    if not isinstance(count, Integral) or isinstance(count, bool) or count < 1:
        raise OptionError(
            f"microbatches is a whole number from 1, or None. Got {count!r}; give a number that "
            "divides the batch, such as 4."
        )


def _check_pipeline(
    pipeline: bool | int | str | None,
    microbatches: int | None,
    algorithm: str,
) -> None:
    is_number = isinstance(pipeline, Integral) and not isinstance(pipeline, bool)
    if pipeline is None or pipeline is False:
        return
    if pipeline != "auto" and not (is_number and int(pipeline) >= 1):
        raise OptionError(
            "pipeline is a whole number of stages from 1, 'auto' or False. Got "
            f"{pipeline!r}; give a number of at most as many stages as devices, such as 4."
        )
    if pipeline == 1:
        return
    if microbatches == 1:
        raise OptionError(
            "stages of a pipeline work at once on different microbatches. Got "
            f"pipeline={pipeline!r} with microbatches=1; give at least 2, or leave it out."
        )
    if algorithm != "ft":
        raise OptionError(
            f"stages are searched by algorithm='ft'. Got algorithm={algorithm!r} with "
            f"pipeline={pipeline!r}; leave one of the two out."
        )


def _check_count(name: str, count: int) -> None:
    if count < 1:
        raise OptionError(
            f"{name} takes whole numbers from 1. Got {count!r}; correct it, or leave it out."
        )


def check_validate(validate: object, option: str, algorithm: str) -> None:
    """Check the argument ``validate``.

    Raises:
        OptionError: if it is not a whole number from 0, or there is nothing to measure.
    """
    if isinstance(validate, bool) or not isinstance(validate, int) or validate < 0:
        raise OptionError(
            "validate is the number of frontier points to measure besides data parallelism. "
            f"Got {validate!r}; give a number such as 3, or 0 to measure nothing."
        )
    if validate and option == "profiling":
        raise OptionError(
            "validate measures plans before one is adopted, and option='profiling' adopts none. "
            f"Got validate={validate}; leave it out, or use an option that plans."
        )
    if validate and algorithm not in _VALIDATED_ALGORITHMS:
        raise OptionError(
            f"validate is for algorithms that find several strategies: "
            f"{', '.join(_VALIDATED_ALGORITHMS)}. Got validate={validate} with "
            f"algorithm={algorithm!r}, which finds one; leave one of the two out."
        )


def check_point(point: object, option: str, validate: int) -> None:
    """Check the argument ``point``, except for the length of the frontier.

    Raises:
        OptionError: if it is not a whole number, or another option contradicts it.
    """
    if point is None:
        return
    if isinstance(point, bool) or not isinstance(point, int):
        raise OptionError(
            "point is the number of a point of the frontier, or None. Got "
            f"{point!r}; `tensoropt show` lists the points of a plan's frontier."
        )
    if option == "profiling" or validate:
        other = f"validate={validate}" if validate else "option='profiling'"
        raise OptionError(
            "point takes the plan of one point of the frontier, unmeasured. Got "
            f"point={point} with {other}; leave one of the two out."
        )
