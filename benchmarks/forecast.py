"""Forecast the cost of large sharded matrices on H200s: `python benchmarks/forecast.py [PNG]`.

Prints the estimates of `exact.sharded.cost` for hosts of eight, and plots hours against states up
to the memory limit. Nothing is measured here; `cost.H200` lists the assumptions.
"""

from __future__ import annotations

import dataclasses
import itertools
import sys
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke

from bisimetric import views
from bisimetric.exact.sharded.cost import (
    H200,
    Cost,
    bound_sweeps,
    estimate_cost,
    estimate_grid_rows,
)
from bisimetric.views._figure import GREY, add_legend_below, build_colormap

STATES = (300_000, 1_000_000)
DEVICES = (8, 16, 32, 64)
ACTIONS = 4
SWEEPS = bound_sweeps(0.99)
"""Hardly any MDP needs more at discount 0.99; small ones took less, see docs/reports/scaling.md."""
SUCCESSORS = ("random", "grid-like")


GRID_H200 = dataclasses.replace(H200, long_row_bandwidth=1405e9)
"""The same with grid-like successors; also measured for 20,000 rows of 300,000 states."""


def forecast(states: int, devices: int, successors: str) -> Cost:
    if successors == "random":
        return estimate_cost(states, ACTIONS, devices)
    rows = estimate_grid_rows(states, devices)
    return estimate_cost(states, ACTIONS, devices, received_rows=rows, machine=GRID_H200)


def find_max_states(devices: int) -> int:
    """Return the largest number of states that fits."""
    low, high = 1000, 10_000_000
    while high - low > 1000:
        middle = (low + high) // 2
        low, high = (
            (middle, high) if estimate_cost(middle, ACTIONS, devices).fits else (low, middle)
        )
    return low


def print_table() -> None:
    """Print seconds per sweep and total minutes by size, number of devices and successors."""
    heads = ["states", "GPUs", "GiB on each", "successors", "received GB"]
    heads += ["compute", "exchange", "cycles", "minutes"]
    print(f"| {' | '.join(heads)} |")
    print("|---" * len(heads) + "|")
    for states, devices, successors in itertools.product(STATES, DEVICES, SUCCESSORS):
        c = forecast(states, devices, successors)
        if c.fits:
            seconds = f"{c.compute_seconds:.3f} | {c.exchange_seconds:.3f} | {c.cycle_seconds:.3f}"
            print(
                f"| {states:,} | {devices} | {c.device_bytes / 2**30:.0f} | {successors} | "
                f"{c.received_bytes / 1e9:.3g} | {seconds} | {60 * c.hours(SWEEPS):.3g} |"
            )
    print()
    for devices in DEVICES:
        print(f"{devices} GPUs hold {find_max_states(devices):,} states")
    print(f"at discount 0.99 at most {bound_sweeps(0.99):,} sweeps")


def plot_forecast() -> Figure:
    """Plot hours against states, one line per number of devices, up to the memory limit."""
    figure = Figure(figsize=(9.6, 4.6), layout="constrained")
    panels = figure.subplots(1, 2, sharex=True, sharey=True)
    for axes, successors in zip(panels, SUCCESSORS, strict=True):
        _plot_lines(axes, successors)
        axes.set_title(f"{successors} successors", fontsize=10)
        axes.set_xlabel("states")
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(color="0.92", lw=0.7)
        axes.set_axisbelow(True)
    panels[0].set(
        xscale="log", yscale="log", ylabel=f"time for {SWEEPS:,} sweeps", xlim=(5e4, 1.3e6)
    )
    ticks = [60_000, 100_000, 200_000, 300_000, 600_000, 1_000_000]
    panels[0].set_xticks(ticks, [f"{tick // 1000:,}k" if tick < 1e6 else "1M" for tick in ticks])
    panels[0].minorticks_off()
    hours = {1 / 60: "1 min", 1 / 6: "10 min", 1.0: "1 h", 10.0: "10 h"}
    panels[0].set_yticks(list(hours), list(hours.values()))
    panels[0].set_ylim(0.3 / 60, 10)
    figure.suptitle(
        "Forecast by the cost model, not measured; bars mark the memory limit\n"
        "d~, 4 actions, float32, hosts of eight H200",
        fontsize=11,
    )
    add_legend_below(figure, [f"{devices} GPUs" for devices in DEVICES])
    return figure


def _plot_lines(axes: Axes, successors: str) -> None:
    dashes: tuple[object, ...] = ("-", (0, (6, 2)), (0, (3, 2)), (0, (1, 1.5)))
    for place, devices in enumerate(DEVICES):
        end = find_max_states(devices)
        states = np.geomspace(60_000, end, 60).astype(int)
        hours = [forecast(int(each), devices, successors).hours(SWEEPS) for each in states]
        colour = build_colormap()(0.85 * place / (len(DEVICES) - 1))
        axes.plot(states, hours, color=colour, ls=dashes[place], lw=2.2, label=f"{devices} GPUs")
        axes.plot(end, hours[-1], marker="|", ms=13, mew=2.2, color=colour, label="_end")
        axes.annotate(
            f"{end // 1000:,}k",
            (end, hours[-1]),
            xytext=(0, 9),
            textcoords="offset points",
            ha="center",
            fontsize=8,
            color=GREY,
            path_effects=[withStroke(linewidth=3, foreground="white")],
        )


if __name__ == "__main__":
    print_table()
    if sys.argv[1:]:
        views.save_figure(plot_forecast(), Path(sys.argv[1]))
