"""How often measuring overruled the prediction."""

from __future__ import annotations

from tensoropt.plan.validation_result import Trial, Validation


def of(*times: tuple[float, float | None], adopted: int = 0) -> Validation:
    """Candidates by predicted and measured milliseconds."""
    trials = [
        Trial(
            f"candidate {number}",
            round(predicted * 1e6),
            2**20,
            measured_seconds=None if measured is None else measured / 1e3,
            dropped="too large" if measured is None else "",
        )
        for number, (predicted, measured) in enumerate(times)
    ]
    return Validation(len(trials), tuple(trials), adopted)


def test_pairs_in_another_order_are_counted() -> None:
    assert (of((1, 10), (2, 20), (3, 30)).overruled, of((1, 1)).comparisons) == (0, 0)
    upside_down = of((1, 30), (2, 20), (3, 10))
    assert (upside_down.overruled, upside_down.comparisons) == (3, 3)
    one_pair = of((1, 20), (2, 10), (3, 30))
    assert (one_pair.overruled, one_pair.comparisons) == (1, 3)
    assert one_pair.verdict == "measuring overruled the prediction in 1 of 3 comparisons"


def test_what_was_not_measured_or_predicted_apart_is_no_comparison() -> None:
    assert of((1, 20), (2, None), (3, 10)).comparisons == 1
    assert of((1, 20), (1, 10)).comparisons == 0
    level = of((1, 10), (2, 10))
    assert (level.overruled, level.comparisons) == (0, 1)


def test_without_a_comparison_nothing_is_said_of_them() -> None:
    assert str(of((1, None))) == "candidate 0: predicted 1.000 ms; dropped, too large (adopted)"


def test_what_it_says() -> None:
    lines = str(of((1, 20), (2, None), (3, 10), adopted=2)).splitlines()
    assert lines == [
        "candidate 0: predicted 1.000 ms, measured 20.000 ms on the slowest rank",
        "candidate 1: predicted 2.000 ms; dropped, too large",
        "candidate 2: predicted 3.000 ms, measured 10.000 ms on the slowest rank (adopted)",
        "measuring overruled the prediction in 1 of 1 comparison",
    ]
