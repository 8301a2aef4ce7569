"""Tables and figures of docs/reports/agents.md, from the results of `minatar_losses.py`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from textwrap import wrap as wrap_text

import numpy as np
from numpy.typing import NDArray

from bisimetric.views import save_figure
from bisimetric.views._figure import PALETTE, Figure
from minatar_losses import BASELINES, LOSSES, PROTOCOL, list_configurations
from report import format_row, write_results

Array = NDArray[np.float64]
NUM_RESAMPLES = 2_000
NAMES = {"none": "no metric loss", "mico": "MICo", "simsr": "SimSR", "on_policy": "on_policy"}
METRIC_MEASURES = {
    "error": "mean error / mean distance",
    "outside": "outside the bounds on d^pi",
    "rank_correlation": "rank correlation",
    "feature_correlation": "rank correlation of features",
    "noise": "noise in features",
}


def compute_iqm(scores: Array) -> Array:
    """Compute the interquartile mean: the mean without the lowest and the highest quarter.

    Of n numbers floor(n / 4) are left out at either end. NaN is ignored.

    Args:
        scores: (..., n).

    Returns:
        (...), NaN where all numbers are.

    >>> float(compute_iqm(np.array([100.0, 1.0, 3.0, 2.0, -50.0, 4.0, 5.0, 6.0])))
    3.5
    """
    ordered = np.sort(scores, axis=-1)  # NaN last
    number = np.isfinite(ordered).sum(axis=-1, keepdims=True)
    rank = np.arange(ordered.shape[-1])
    within = (rank >= number // 4) & (rank < number - number // 4)
    total = np.where(within, np.nan_to_num(ordered), 0.0).sum(axis=-1)
    count = within.sum(axis=-1)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def bootstrap_iqm(
    scores: Array, baseline: Array | None = None, seed: int = 0
) -> tuple[float, float, float]:
    """Compute an interquartile mean, or a difference of two, and its 95% interval.

    The bootstrap is stratified: seeds are drawn with replacement within each game, for both arrays
    independently of one another.

    Args:
        scores: (games, seeds).
        baseline: (games, seeds), whose interquartile mean is subtracted; default: nothing.
        seed: of the resampling.

    Returns:
        The statistic, and its 2.5% and 97.5% quantiles over resamples.
    """
    rng = np.random.default_rng(seed)

    def resample(values: Array) -> tuple[Array, Array]:
        games, seeds = values.shape
        rows = rng.integers(seeds, size=(NUM_RESAMPLES, games, seeds))
        drawn = np.take_along_axis(values[None], rows, axis=2)
        return compute_iqm(values.ravel()), compute_iqm(drawn.reshape(NUM_RESAMPLES, -1))

    found, draws = resample(scores)
    if baseline is not None:
        other, other_draws = resample(baseline)
        found, draws = found - other, draws - other_draws
    low, high = np.nanquantile(draws, [0.025, 0.975]) if np.isfinite(found) else (found, found)
    return float(found), float(low), float(high)


def load_results(folder: Path) -> dict[str, dict[str, Array]]:
    """Read the results of all games in a folder, in the order of the protocol."""
    results = {}
    for game in PROTOCOL.games:
        path = folder / f"{game}.npz"
        if path.exists():
            with np.load(path) as file:
                results[game] = {name: np.asarray(file[name], np.float64) for name in file.files}
    if not results:
        raise SystemExit(f"{folder} has no results: python benchmarks/minatar_losses.py run GAME.")
    return results


def is_finished(measures: dict[str, Array]) -> bool:
    """Return whether the training of a game reached the last checkpoint."""
    return len(measures["steps"]) == PROTOCOL.checkpoints + 1


def normalise_returns(results: dict[str, dict[str, Array]]) -> Array:
    """Scale the returns of each game: 0 is random actions, 1 the best configuration.

    The best configuration is that with the largest mean return at the end without distractors. A
    game in which no configuration beats random actions is left out.

    Returns:
        (games, checkpoints, configurations, seeds).
    """
    scaled = []
    hidden = [not distractors for _, _, distractors in list_configurations()]
    for measures in results.values():
        random = measures["random_returns"].mean()
        best = measures["returns"][-1].mean(axis=1)[hidden].max()
        if best > random:
            scaled.append((measures["returns"] - random) / (best - random))
    return np.array(scaled)


def format_interval(value: float, low: float, high: float, sign: str = "") -> str:
    """Return a number and its interval; bold where the interval of a difference excludes 0."""
    text = f"{value:{sign}.2f} [{low:{sign}.2f}, {high:{sign}.2f}]"
    return f"**{text}**" if sign and (low > 0 or high < 0) else text


def format_returns(returns: Array) -> list[str]:
    """Return the table of interquartile means at the end, and of the gains by a metric loss.

    Args:
        returns: (games, checkpoints, configurations, seeds), normalised.
    """
    names = list_configurations()
    header = ("baseline", "metric loss", "without distractors", "gain", "with distractors", "gain")
    lines = [format_row(header), format_row(["---"] * len(header))]
    final = returns[:, -1]
    for baseline in BASELINES:
        for loss in ("none", *LOSSES):
            cells = [baseline if loss == "none" else "", NAMES[loss]]
            for distractors in (False, True):
                scores = final[:, names.index((baseline, loss, distractors))]
                cells.append(format_interval(*bootstrap_iqm(scores)))
                reference = final[:, names.index((baseline, "none", distractors))]
                gain = bootstrap_iqm(scores, reference)
                cells.append("" if loss == "none" else format_interval(*gain, sign="+"))
            lines.append(format_row(cells))
    return lines


def format_games(results: dict[str, dict[str, Array]]) -> list[str]:
    """Return the table of mean returns per game at its last checkpoint, without / with distractors.

    The header has the steps of a game that was stopped before the end.
    """
    names = list_configurations()
    titles = [
        game if is_finished(each) else f"{game}, {int(each['steps'][-1]):,} steps"
        for game, each in results.items()
    ]
    header = ("baseline", "metric loss", *titles)
    lines = [format_row(header), format_row(["---"] * len(header))]
    random = [f"{each['random_returns'].mean():.1f}" for each in results.values()]
    lines.append(format_row(["random actions", "", *random]))
    for baseline in BASELINES:
        for loss in ("none", *LOSSES):
            cells = [baseline if loss == "none" else "", NAMES[loss]]
            for measures in results.values():
                means = [
                    measures["returns"][-1, names.index((baseline, loss, each))].mean()
                    for each in (False, True)
                ]
                cells.append(" / ".join(f"{mean:.1f}" for mean in means))
            lines.append(format_row(cells))
    return lines


def compute_metric_measures(results: dict[str, dict[str, Array]]) -> dict[str, Array]:
    """Return the measures of a metric, (games, checkpoints, configurations, seeds) each.

    Errors are relative to the mean estimated distance of the same agent and checkpoint: of the
    independent coupling for `error`, and of common random numbers for `outside`. Agents whose
    futures have no rewards at all have no relative error: NaN.
    """
    stacked = {
        name: np.array([each[name] for each in results.values()])
        for name in next(iter(results.values()))
        if name != "steps"
    }
    with np.errstate(divide="ignore", invalid="ignore"):
        error = stacked["error"] / stacked["independent"]
        outside = stacked["outside"] / stacked["common"]
    stacked |= {
        "error": np.where(np.isfinite(error), error, np.nan),
        "outside": np.where(np.isfinite(outside), outside, np.nan),
    }
    return {name: stacked[name] for name in METRIC_MEASURES}


def describe_bounds(results: dict[str, dict[str, Array]]) -> str:
    """Return a sentence on the widths of the bounds on d^pi at the end, over all agents."""
    shares = {
        name: np.mean(
            [each[name][-1].mean() / each["independent"][-1].mean() for each in results.values()]
        )
        for name in ("values", "common")
    }
    return (
        f"Over all agents the mean of values is {100 * shares['values']:.0f}%, and that of common "
        f"random numbers {100 * shares['common']:.1f}%, of the mean of the independent coupling."
    )


def format_metrics(measures: dict[str, Array], distractors: bool) -> list[str]:
    """Return the table of the measures of a metric at the end, interquartile means."""
    names = list_configurations()
    header = ("baseline", "metric loss", *METRIC_MEASURES.values())
    lines = [format_row(header), format_row(["---"] * len(header))]
    for baseline in BASELINES:
        for loss in ("none", *LOSSES):
            cells = [baseline if loss == "none" else "", NAMES[loss]]
            for name, values in measures.items():
                scores = values[:, -1, names.index((baseline, loss, distractors))]
                learned = name in ("error", "outside", "rank_correlation")
                interval = bootstrap_iqm(scores)
                empty = (learned and loss == "none") or (name == "noise" and not distractors)
                cells.append("" if empty else format_interval(*interval))
            lines.append(format_row(cells))
    return lines


def draw_curves(steps: Array, panels: Sequence[tuple[str, Array]], losses: Sequence[str]) -> Figure:
    """Draw interquartile means over training: a row per measure, a column per baseline.

    Args:
        steps: (checkpoints,), in environment steps.
        panels: label and values (games, checkpoints, configurations, seeds) of each row; rows
            alternate between agents without and with distractors.
        losses: the lines of a panel.

    Returns:
        A figure.
    """
    names = list_configurations()
    figure = Figure(figsize=(9.5, 2.3 * len(panels) + 0.6), layout="constrained")
    grid = figure.subplots(len(panels), len(BASELINES), sharex=True, sharey="row", squeeze=False)
    colours = dict(zip(("none", *LOSSES), ("0.35", *PALETTE), strict=False))
    for row, (label, values) in enumerate(panels):
        for column, baseline in enumerate(BASELINES):
            axes = grid[row, column]
            for loss in losses:
                index = names.index((baseline, loss, row % 2 == 1))
                points = np.array(
                    [
                        bootstrap_iqm(values[:, checkpoint, index])
                        for checkpoint in range(len(steps))
                    ]
                )
                style = {"color": colours[loss], "lw": 1.6}
                axes.plot(steps / 1e6, points[:, 0], label=NAMES[loss], marker="o", ms=3, **style)
                axes.fill_between(
                    steps / 1e6, points[:, 1], points[:, 2], color=colours[loss], alpha=0.15, lw=0
                )
            if row == 0:
                axes.set_title(baseline, fontsize=10)
            if column == 0:
                axes.set_ylabel(label, fontsize=9)
            if row == len(panels) - 1:
                axes.set_xlabel("million environment steps", fontsize=9)
            axes.spines[["top", "right"]].set_visible(False)
            axes.tick_params(labelsize=8)
    handles, labels = grid[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(losses), frameon=False)
    return figure


def write_report(folder: Path, page: Path, write: bool) -> list[str]:
    """Print the tables; with `write`, put them into the page and draw its figures.

    Args:
        folder: of the results and of the figures.
        page: the Markdown page.
        write: whether to write both.

    Returns:
        The lines of the tables.
    """
    everything = load_results(folder)
    results = {game: each for game, each in everything.items() if is_finished(each)}
    if not results:
        raise SystemExit(f"{folder} has no game that was run to the end.")
    steps = next(iter(results.values()))["steps"]
    returns, measures = normalise_returns(results), compute_metric_measures(results)
    seeds = returns.shape[-1]
    lines = [
        *wrap_text(
            f"Games that were run to the end, {int(steps[-1]):,} environment steps per agent: "
            f"{', '.join(results)}. Interquartile means of returns are over {len(returns)} games "
            f"and {seeds} seeds."
        ),
        "",
        "### Returns",
        "",
        *format_returns(returns),
        "",
        f"![Returns over training]({folder.name}/returns.png)",
        "",
        "### Returns per game",
        "",
        *format_games(everything),
        "",
        "### Metric error",
        "",
        *wrap_text(describe_bounds(results)),
        "",
        "Without distractors:",
        "",
        *format_metrics(measures, distractors=False),
        "",
        "With distractors:",
        "",
        *format_metrics(measures, distractors=True),
        "",
        f"![Metric error over training]({folder.name}/metric.png)",
        "",
    ]
    print("\n".join(lines))
    if write:
        labels = ("normalised return", "normalised return,\nwith distractors")
        figure = draw_curves(steps, [(each, returns) for each in labels], ("none", *LOSSES))
        save_figure(figure, folder / "returns.png")
        # Before training, all environments are in their few initial states.
        panels = [
            (f"{label}{suffix}", measures[name][:, 1:])
            for name, label in (
                ("error", "relative error"),
                ("rank_correlation", "rank correlation"),
            )
            for suffix in ("", ",\nwith distractors")
        ]
        save_figure(draw_curves(steps[1:], panels, LOSSES), folder / "metric.png")
        write_results(page, lines)
    return lines
