"""The declaration of the options of planning."""

from __future__ import annotations

import math
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from tensoropt.errors import OptionError
from tensoropt.planner.options.planning_options import PlanningOptions, command_options
from tensoropt.planner.options.values import memory, value_of


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1", 1),
        ("512B", 512),
        ("8GiB", 8 * 2**30),
        ("1.5 GB", 1_500_000_000),
        (" 3kB ", 3000),
        ("0.5KiB", 512),
        ("2TiB", 2**41),
    ],
)
def test_amounts_of_memory(text: str, size: int) -> None:
    assert memory(text) == size


@pytest.mark.parametrize("name", ["memory_limit_bytes", "steps"])
def test_an_amount_is_a_finite_number_that_becomes_whole(name: str) -> None:
    options: dict[str, Any] = {name: 8e9}
    assert repr(getattr(PlanningOptions(**options), name)) == "8000000000"
    for value in (math.inf, math.nan, 0.5):
        with pytest.raises(OptionError, match="takes whole numbers from 1"):
            PlanningOptions(**{name: value})


def test_numbers_of_numpy_become_python_s() -> None:
    options: dict[str, Any] = {"batch_size": np.int64(8), "microbatches": np.int32(2)}
    made = PlanningOptions(**options, epsilon=np.float32(0.5), pipeline=np.int64(1))
    kept = [made.batch_size, made.microbatches, made.epsilon, made.pipeline]
    assert [type(value) for value in kept] == [int, int, float, int]


@pytest.mark.parametrize("text", ["", "GiB", "-1GiB", "0", "0.1", "8gib", "8 G i B", "1e9", "nan"])
def test_texts_that_are_no_amount_of_memory(text: str) -> None:
    with pytest.raises(OptionError, match=r"Got .*; give an amount such as 8GiB"):
        memory(text)


@pytest.mark.parametrize(
    ("flag", "text", "value"),
    [
        ("--batch-size", "64", 64),
        ("--memory-limit", "8GiB", 2**33),
        ("--parallelism", "4,1,4", (1, 4)),
        ("--memory-limits", "2kB,1kB", (1000, 2000)),
        ("--device-hour-cost", "2.5", 2.5),
        ("--search-seconds", "None", math.inf),
        ("--search-seconds", "0.5", 0.5),
        ("--pipeline", "auto", "auto"),
        ("--pipeline", "1", 1),
        ("--point", "-1", -1),
        ("--schedule", "gpipe", "gpipe"),
        ("--fetches", "train,loss", ("train", "loss")),
        ("--shapes", "a=32,64 b=32", {"a": (32, 64), "b": (32,)}),
        *(("--shapes", text, None) for text in ("32,64", "a=", "a=x", "a=1=2")),
        *(
            (flag, text, None)
            for flag in ("--batch-size", "--microbatches")
            for text in ("0", "-1")
        ),
        *(("--microbatches", text, None) for text in ("1.0", "", "x")),
        *(("--search-seconds", text, None) for text in ("0", "-1", "nan", "", "x")),
        *(("--device-hour-cost", text, None) for text in ("0", "inf", "nan", "free")),
        *(("--parallelism", text, None) for text in ("", "2,", "2,0", "two")),
        ("--pipeline", "True", None),
        ("--point", "last", None),
        ("--schedule", "g", None),
        ("--algorithm", "toffu", None),
    ],
)
def test_texts_of_the_command_line(flag: str, text: str, value: Any) -> None:
    (option,) = (option for option in command_options() if option.flag == flag)
    if value is not None:
        assert option.check(flag, value_of(text, option.parse)) == value
        return
    with pytest.raises(OptionError, match="Got"):
        option.check(flag, value_of(text, option.parse))


def test_every_option_has_documentation() -> None:
    text = PlanningOptions.__doc__ or ""
    assert all(f"\n        {option.name}: " in text for option in fields(PlanningOptions))
    assert all(20 < len(option.help) < 200 for option in command_options())


def test_values_are_checked_and_kept_in_one_form() -> None:
    options = PlanningOptions("profiling", parallelism=iter([np.int64(4), 1, 4]))
    assert options.parallelism == (1, 4)
    with pytest.raises(OptionError, match=r"parallelism is for .* with option='mini_time'"):
        replace(options, option="mini_time")
    for name, value in {
        "save_memory": "always",
        "rewrite": 2,
        "steps": 0,
        "batch_size": 2.5,
        "validate": True,
        "pipeline": True,
        "shapes": [32, 64],
        "fetches": "train",
        "microbatches": False,
        "epsilon": "small",
        "search_seconds": True,
        "memory_limit_bytes": "8GiB",
    }.items():
        with pytest.raises(OptionError, match=f"^{name} .*Got .*; "):
            PlanningOptions(**{name: value})  # type: ignore[arg-type]
    with pytest.raises(OptionError, match=r"^parallelism takes several .*Got 7; give a list such"):
        PlanningOptions(option="profiling", parallelism=7)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match=r"^epsilon is at least 0\. Got inf; "):
        PlanningOptions(epsilon=math.inf)
    for shape in (32, [32, None], [-1, 4], "32", [[2]]):
        with pytest.raises(OptionError, match=r"^shapes has a shape .*Got .*; give shapes="):
            PlanningOptions(shapes={"x": shape})  # type: ignore[dict-item]
    for fetches in ([], object(), np.zeros(2)):  # an operator is no sequence, a tensor neither
        with pytest.raises(OptionError, match=r"^fetches is a list .*Got .*; give a list"):
            PlanningOptions(fetches=fetches)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("pipeline", "algorithm", "stages", "is_demanded"),
    [
        (None, "ft", None, False),
        (None, "data_parallel", 1, False),
        (False, "ft", 1, False),
        (1, "ft", 1, False),
        (4, "ft", 4, True),
        ("auto", "ft", None, True),
    ],
)
def test_numbers_of_stages(
    pipeline: Any, algorithm: str, stages: int | None, is_demanded: bool
) -> None:
    options = PlanningOptions(pipeline=pipeline, algorithm=algorithm)
    assert (options.stages, options.demands_stages) == (stages, is_demanded)
