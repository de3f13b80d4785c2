"""Tables of a profile's measurements."""

from __future__ import annotations

from collections.abc import Iterable

from tensoropt.cost.machine_profile import Profile
from tensoropt.report.text_table import Report, table

__all__ = ["collective_table", "left_line", "operator_table", "overhead_line", "steps_line"]

_SPREAD = 0.2
"""Measurements with a larger relative interquartile range are reported as not repeatable."""
_NOISY = 0.25
"""A profile is noisy if a larger share of its measurements is not repeatable."""
_LONGEST = 12  # rows


def collective_table(profile: Profile) -> Report:
    """One line per collective and device partition: smallest, middle and largest size."""
    rows = []
    for measured in profile.tables():
        middle = len(measured.bytes) // 2
        cells = [measured.kind, str(list(measured.axes))]
        for number in (0, middle, -1):
            microseconds = measured.nanoseconds[number] / 1e3
            cells.append(f"{microseconds:,.1f} ({_size(measured.bytes[number])})")
        rate = measured.bytes[-1] / measured.nanoseconds[-1]
        rows.append([*cells, f"{rate:.2f}"])
    header = ["collective", "axes", "time (us)", "time (us)", "time (us)", "GB/s"]
    return table(header, rows, [False, False, True, True, True, True])


def operator_table(profile: Profile) -> Report:
    """The operators with the longest times, forward and backward."""
    slowest = sorted(profile.operators, key=lambda operator: -operator.time.total)[:_LONGEST]
    rows = [
        [
            operator.work.operator,
            " ".join(str(list(shape)) for shape in operator.work.local_shapes),
            f"{operator.forward_nanoseconds / 1e3:,.1f}",
            f"{operator.backward_nanoseconds / 1e3:,.1f}",
        ]
        for operator in slowest
    ]
    header = ["operator", "local shapes", "forward (us)", "backward (us)"]
    return table(header, rows, [False, False, True, True])


def overhead_line(profile: Profile) -> str:
    """Overheads, the repeatability of the measurements, and the remedy if a profile is noisy."""
    spreads = [collective.spread for collective in profile.collectives]
    spreads += [operator.spread for operator in profile.operators]
    wide = sum(spread > _SPREAD for spread in spreads)
    outliers = sum(collective.outliers for collective in profile.collectives)
    outliers += sum(operator.outliers for operator in profile.operators)
    overheads = profile.overheads
    line = (
        ""
        if overheads is None
        else (
            f"overheads: {overheads.dispatch_nanoseconds / 1e3:.2f} us an operator, "
            f"{overheads.collective_nanoseconds / 1e3:.1f} us a collective, "
            f"{overheads.step_nanoseconds / 1e3:.1f} us a step\n"
        )
    )
    line = (
        f"{line}repeatability: {wide} of {len(spreads)} measurements spread by more than "
        f"{_SPREAD:.0%}, {outliers} outliers"
    )
    if wide <= _NOISY * len(spreads):
        return line
    return (
        f"{line}\nthis profile is noisy, and plans made with it may be slow: end other programs, "
        "start no more ranks than there are cores, and measure again with --force"
    )


def steps_line(profile: Profile) -> str:
    """The slowdown of operators and collectives in steps of training."""
    longer = profile.in_steps()
    whole = sum(step.microbatches == 1 for step in profile.steps)
    line = (
        f"in steps of training under {whole} strategies, operators take "
        f"{longer.computing:.2f} times as long as alone, collectives {longer.overall:.2f} times"
    )
    if whole == len(profile.steps):
        return line
    again = f"{longer.rereading:.2f} ns"
    return f"{line}; each microbatch reads and writes a byte of the weights in {again}"


def left_line(collectives: Iterable[tuple[str, int]]) -> str:
    """A line about collectives that were not measured, given by kind and bytes."""
    sizes: dict[str, list[int]] = {}
    for kind, bytes_ in collectives:
        sizes.setdefault(kind, []).append(bytes_)
    left = ", ".join(f"{len(of)} {kind} from {_size(min(of))} up" for kind, of in sizes.items())
    return (
        "there was no time for some collectives, which are interpolated or priced by the links: "
        f"{left}; --network-seconds gives more"
    )


def _size(bytes_: int) -> str:
    """A rounded size in binary units."""
    power = min((bytes_.bit_length() - 1) // 10, 2)
    return f"{bytes_ / 2 ** (10 * power):.4g} {('B', 'KiB', 'MiB')[power]}"
