"""RaNNC's claims are judged from data alone: each is shown data as in the paper, and others."""

from __future__ import annotations

import pytest

from reproduction.rannc.claims import all_claims, largest
from reproduction.rannc.models import Line
from reproduction.rannc.tables import claims_table


def line(model: str, parameters: int, **rates: float | None) -> Line:
    """What systems find, None where nothing fits; RaNNC's stages are wide."""
    found: Line = {}
    for name, rate in rates.items():
        known = {"error": "too large"} if rate is None else {"examples_per_second": rate}
        found[name.replace("_", " ").replace(" one", ", one")] = {"seconds": 3.0} | known
    found["rannc"]["stages"] = [[0, 15, 1], [16, 31, 2]]
    found["ours"]["memory_gb"] = 31.0
    balance = {"imbalance": 2.13, "longest_atom": 2.12}
    return {"model": model, "parameters": parameters, "found": found, **balance}


def as_in_the_paper() -> list[Line]:
    """Data under which all claims hold."""
    small = line(
        "48x1024", 600, data_parallelism=1.0, megatron=10.0, gpipe=8.0, rannc=11.0, ours=11.5
    )
    small["found"]["without blocks"] = {"examples_per_second": 7.4, "seconds": 9.0}
    small["found"]["rannc, 64 blocks"] = {"examples_per_second": 11.2, "seconds": 9.0}
    large = line(
        "96x1024", 3000, data_parallelism=None, megatron=None, gpipe=5.0, rannc=6.0, ours=6.5
    )
    large["found"]["without blocks"] = {"error": "none", "seconds": 9.0}
    resnets = [
        line(
            f"resnet{depth}x8",
            depth,
            data_parallelism=fits,
            rannc=3.0,
            rannc_one_machine=1.0,
            gpipe_one_machine=0.5,
            ours=4.0,
        )
        for depth, fits in ((50, 2.0), (152, None))
    ]
    middle = line(
        "24x1024", 500, data_parallelism=1.0, megatron=20.0, gpipe=15.0, rannc=22.0, ours=23.0
    )
    small["found"]["data parallelism"] = {"error": "too large", "seconds": 1.0}
    return [middle, small, large, *resnets]


def test_claims_hold_as_in_the_paper() -> None:
    lines = as_in_the_paper()
    claims = all_claims(lines)
    assert [claim.claim for claim in claims if not claim.holds] == []
    assert len(claims) == 16
    assert largest(lines)["megatron"] == {"model": "48x1024", "parameters": 600}
    assert claims_table(claims).count("\n| ") == len(claims) + 1


@pytest.mark.parametrize(
    ("model", "system", "rate", "failing"),
    [
        (2, "gpipe", 7.0, ["RaNNC is faster than GPipe"]),
        (2, "gpipe", 4.0, ["RaNNC's lead"]),
        (2, "megatron", 6.0, ["RaNNC's largest"]),
        (1, "megatron", 5.0, ["RaNNC is about as fast"]),
        (4, "rannc", None, ["RaNNC trains every model"]),
        (4, "data parallelism", 1.0, ["of the ResNets"]),
        (3, "gpipe, one machine", 0.9, ["on one machine"]),
        (1, "without blocks", 10.9, ["without blocks throughput"]),
        (2, "without blocks", 1.0, ["without blocks there"]),
        (1, "rannc, 64 blocks", 12.0, ["32 blocks"]),
        (0, "ours", 22.0, ["ours is faster"]),
        (0, "ours", 21.0, ["ours is at least", "ours is faster"]),
    ],
)
def test_claims_fail_on_other_data(
    model: int, system: str, rate: float | None, failing: list[str]
) -> None:
    lines = as_in_the_paper()
    found = lines[model]["found"][system]
    for key in ("error", "examples_per_second"):
        found.pop(key, None)
    found |= {"error": "too large"} if rate is None else {"examples_per_second": rate}
    claims = [claim.claim for claim in all_claims(lines) if not claim.holds]
    assert len(claims) == len(failing)
    for claim, begins in zip(claims, failing, strict=True):
        assert claim.startswith(begins)


def test_a_block_is_too_long_where_no_component_is() -> None:
    for imbalance, longest, holds in ((1.25, 0.5, True), (1.26, 1.2, True), (1.26, 0.5, False)):
        judged = {**as_in_the_paper()[0], "imbalance": imbalance, "longest_atom": longest}
        (claim,) = [c for c in all_claims([judged]) if c.claim.startswith("no block")]
        assert claim.holds == holds


def test_what_was_not_asked_for_is_not_judged() -> None:
    (small,) = [each for each in as_in_the_paper() if each["model"] == "48x1024"]
    assert not any("ResNet" in claim.claim for claim in all_claims([small]))
    assert all_claims([]) == []
