"""Figures 6, 7 and 8 as pictures, laid out as in the paper."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from reproduction.paper.claims import Evidence, shortest
from reproduction.paper.claims.evidence import TITLES, knee
from reproduction.paper.results import Result
from reproduction.paper.tasks import (
    ALGORITHMS,
    FIGURE_6_MODELS,
    FIGURE_7_NETWORKS,
    FIGURE_7_SINGLE_MACHINE,
    FIGURE_7_SIZES,
    FIGURE_8_DEVICES,
    FIGURE_8_MODELS,
    Task,
)

__all__ = ["draw"]

_COLOURS = {
    "ft": "tab:green",
    "mesh_tensorflow": "tab:blue",
    "data_parallel": "tab:red",
    "optcnn": "tab:orange",
    "tofu": "tab:purple",
    "mesh_tensorflow_free": "tab:cyan",
}
_LINES = ("ft", "mesh_tensorflow", "mesh_tensorflow_free")
_MARKERS = {"data_parallel": "s", "optcnn": "^", "tofu": "D", "ft": "o"}
_SEVERAL = ("tab:blue", "tab:green", "tab:orange")
_MEMORY = "memory per device (GB)"
_TIME = "time per iteration (s)"
_FAR = 2.5  # factor of the frontiers' range; the panel names farther points in words


def draw(evidence: Evidence, folder: Path) -> dict[str, Path]:
    """Draw all figures that have data.

    Returns:
        The pictures by figure: "6", "6 VGG16", "7", "8".
    """
    figures = {
        "6": _figure_6(evidence, ("rnn", "wide_resnet", "transformer")),
        "6 VGG16": _figure_6(evidence, ("vgg16",)),
        "6 reuse": _figure_6_reuse(evidence),
        "7": _figure_7(evidence),
        "8": _figure_8(evidence),
    }
    paths = {}
    for name, figure in figures.items():
        paths[name] = folder / f"figure-{name.lower().replace(' ', '-')}.png"
        figure.savefig(paths[name])
    return paths


def _panels(count: int) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(max(5.2 * count, 6.4), 4.4), dpi=110, layout="constrained")
    axes = figure.subplots(1, count, squeeze=False)[0].tolist()
    for panel in axes:
        panel.grid(alpha=0.3)
    return figure, axes


def _from_zero(panel: Axes) -> None:
    """Let times begin at 0, with space above the slowest one."""
    panel.set_ylim(0, 1.05 * panel.dataLim.ymax if np.isfinite(panel.dataLim.ymax) else 1)


def _gb(result: Result) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return result.memory_bytes / 2**30


def _figure_6(evidence: Evidence, models: Sequence[str]) -> Figure:
    figure, panels = _panels(len(models))
    for panel, model in zip(panels, models, strict=True):
        _frontiers(panel, evidence, model)
    handles, labels = panels[-1].get_legend_handles_labels()
    for panel in panels[:-1]:
        for handle, label in zip(*panel.get_legend_handles_labels(), strict=True):
            if label not in labels:
                handles.append(handle)
                labels.append(label)
    figure.legend(handles, labels, loc="outside lower center", ncols=min(len(labels), 7))
    return figure


def _frontiers(panel: Axes, evidence: Evidence, model: str) -> None:
    """Draw the frontiers of one model as lines, the parts of ours dotted, and single strategies
    as points."""
    panel.set(title=TITLES[model], xlabel=_MEMORY, ylabel=_TIME)
    found = {a: evidence.get(Task(model, a)) for a in ALGORITHMS}
    lines = [r for a in _LINES if (r := found[a]) is not None]
    most = max((float(_gb(r)[-1]) for r in lines), default=1.0)
    slowest = max((float(r.nanoseconds[0]) / 1e9 for r in lines), default=1.0)
    outside = []
    for algorithm, result in found.items():
        if result is None:
            continue
        label, colour = ALGORITHMS[algorithm], _COLOURS[algorithm]
        memory, time = _gb(result), result.nanoseconds / 1e9
        if memory[0] > _FAR * most or time[-1] > _FAR * slowest:
            outside.append(f"{label}: {memory[0]:.3g} GB, {time[0]:.3g} s")
        elif algorithm in _LINES:
            marker = "." if len(memory) > 1 else "o"
            panel.plot(memory, time, color=colour, label=label, marker=marker, markersize=3)
        else:
            panel.plot(
                memory, time, _MARKERS[algorithm], color=colour, label=label, zorder=3,
                fillstyle="none", markersize=9, markeredgewidth=1.8,
            )  # fmt: skip
        if algorithm == "ft":
            _parts(panel, result)
    _from_zero(panel)
    if outside:
        panel.text(
            0.98, 0.5, "outside the panel\n" + "\n".join(outside), transform=panel.transAxes,
            ha="right", va="center", fontsize=8,
        )  # fmt: skip


def _parts(panel: Axes, ours: Result) -> None:
    memory = _gb(ours)
    network, computation = ours.network_nanoseconds / 1e9, ours.computation_nanoseconds / 1e9
    panel.plot(memory, network, ":", color="tab:green", label="network time of TensorOpt")
    panel.plot(memory, computation, ":", color="black", label="computation time of TensorOpt")
    turning = knee(ours)
    if turning is not None:
        time = ours.nanoseconds[turning.index] / 1e9
        panel.plot(
            memory[turning.index], time, "o", color="black", fillstyle="none", markersize=8,
            label="turning point",
        )  # fmt: skip


def _figure_6_reuse(evidence: Evidence) -> Figure:
    """Draw frontiers with tensor reuse, and beside them the share of activations that is made
    again."""
    figure, panels = _panels(len(FIGURE_6_MODELS))
    for panel, model in zip(panels, FIGURE_6_MODELS, strict=True):
        panel.set(title=TITLES[model], xlabel=_MEMORY, ylabel=_TIME)
        result = evidence.get(Task(model, reuse=True))
        if result is None:
            panel.text(0.5, 0.5, "not computed", transform=panel.transAxes, ha="center")
            continue
        panel.plot(
            _gb(result), result.nanoseconds / 1e9, color="tab:green", marker=".", markersize=3,
            label="TensorOpt",
        )  # fmt: skip
        _parts(panel, result)
        _from_zero(panel)
        again = panel.twinx()
        dropped = np.array(result.made_again["dropped_bytes"]) / 2**30
        again.plot(
            _gb(result)[list(result.made_again["point"])], dropped, ".", color="tab:red",
            alpha=0.6, label="copies that are dropped (right)",
        )  # fmt: skip
        again.set_ylim(0, max(1, 1.1 * dropped.max()))
        again.set_ylabel("copies dropped (GB of a device)", color="tab:red")
        if model == FIGURE_6_MODELS[-1]:
            handles, labels = panel.get_legend_handles_labels()
            more, names = again.get_legend_handles_labels()
            figure.legend(handles + more, labels + names, loc="outside lower center", ncols=5)
    return figure


def _figure_7(evidence: Evidence) -> Figure:
    figure, panels = _panels(3)
    sizes = []
    for model in FIGURE_7_SIZES:
        result = evidence.get(Task(model))
        if result is not None:
            sizes.append((f"{result.parameters_gb:.3g} GB of parameters", result))
    networks = {name: Task("transformer", cluster=c) for c, name in FIGURE_7_NETWORKS.items()}
    single = {
        name: Task("transformer", cluster=cluster, devices=8)
        for cluster, name in FIGURE_7_SINGLE_MACHINE.items()
    }
    _lines(panels[0], "(a) size of the model", sizes)
    for panel, title, tasks in (
        (panels[1], "(b) network between two machines", networks),
        (panels[2], "(c) one machine, 8 devices", single),
    ):
        _lines(
            panel,
            title,
            [(name, r) for name, task in tasks.items() if (r := evidence.get(task)) is not None],
        )
    return figure


def _lines(panel: Axes, title: str, results: Sequence[tuple[str, Result]]) -> None:
    panel.set(title=f"Transformer, {title}", xlabel=_MEMORY, ylabel=_TIME)
    for colour, (name, result) in zip(_SEVERAL, results, strict=False):
        memory, time = _gb(result), result.nanoseconds / 1e9
        panel.plot(memory, time, color=colour, label=name, marker=".", markersize=3)
        turning = knee(result)
        if turning is not None:
            n = turning.index
            panel.plot(memory[n], time[n], "o", color=colour, fillstyle="none", markersize=9)
    panel.plot([], [], "o", color="black", fillstyle="none", label="turning point")
    _from_zero(panel)
    panel.legend(fontsize=9)


def _figure_8(evidence: Evidence) -> Figure:
    figure, panels = _panels(len(FIGURE_8_MODELS))
    for panel, model in zip(panels, FIGURE_8_MODELS, strict=True):
        panel.set(title=TITLES[model], xlabel="number of devices", ylabel=_TIME)
        for algorithm in ("ft", "data_parallel", "optcnn", "tofu"):
            devices, times, missing = [], [], []
            for count in FIGURE_8_DEVICES:
                result = evidence.get(Task(model, algorithm, devices=count))
                time = None if result is None else shortest(result)
                if result is None:
                    missing.append(str(count))
                elif time is not None:
                    devices.append(count)
                    times.append(time / 1e9)
            label = ALGORITHMS[algorithm]
            label += f" ({', '.join(missing)} not computed)" if missing else ""
            panel.plot(
                devices, times, color=_COLOURS[algorithm], marker=_MARKERS[algorithm], label=label,
                fillstyle="none", markersize=9,
            )  # fmt: skip
        panel.set_xscale("log", base=2)
        panel.set_xticks(FIGURE_8_DEVICES, [str(count) for count in FIGURE_8_DEVICES])
        panel.set_xlim(FIGURE_8_DEVICES[0] / 1.2, FIGURE_8_DEVICES[-1] * 1.2)
        _from_zero(panel)
        panel.legend(title="no mark: out of memory", fontsize=9)
    return figure
