"""Tables and figures of the benchmark, from its rows alone."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bisimetric._io import write_atomically
from bisimetric._statistics import compute_confidence_interval
from bisimetric.paper.loss_benchmark.environments import ENVIRONMENTS, Environment
from bisimetric.paper.loss_benchmark.methods import METHODS
from bisimetric.paper.loss_benchmark.protocol import POLICIES
from bisimetric.paper.loss_benchmark.scores import score
from bisimetric.paper.loss_benchmark.storage import SCORES, Row, average_errors

TITLES = {readout.name: readout.title for each in METHODS.values() for readout in each.readouts}
NOISE_TITLES = {"none": "no distractors", "iid": "i.i.d.", "slow": "slowly moving"}
POLICY_TITLES = {"greedy": "greedy policy", "uniform": "uniform policy"}
COLUMNS = {
    "own_rank_correlation": "rank, own",
    "on_policy_rank_correlation": "rank, d^pi",
    "bisimulation_rank_correlation": "rank, d~",
    "own_error": "error, own",
    "own_scaled_error": "scaled, own",
    "on_policy_scaled_error": "scaled, d^pi",
    "bisimulation_scaled_error": "scaled, d~",
    "own_neighbours": "neighbours, own",
    "policy_violations": "violations",
    "noise_ratio": "noise",
}
"""Scores in the printed table."""


REFERENCE_TITLES = {
    "own": "own",
    "on_policy": r"`#!math d^\pi`",
    "bisimulation": r"`#!math \tilde d`",
}
Column = tuple[Mapping[str, Collection[str]], str]
"""Conditions on the rows of a column, and its heading."""


class Summary(NamedTuple):
    """The mean of a score over MDPs and conditions, and its 95% interval.

    Attributes:
        mean: over seeds, MDPs and conditions.
        half_interval: half the width of the 95% confidence interval over seeds.
        samples: (seeds,), means over MDPs and conditions.
    """

    mean: float
    half_interval: float
    samples: NDArray[np.float64]

    def __str__(self) -> str:
        # Adding 0 removes the sign of a rounded -0.
        return f"{round(self.mean, 2) + 0.0:.2f} ± {self.half_interval:.2f}"


def split_readouts(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Return the rows of each readout, in the order of `METHODS` and then of the rows."""
    found: dict[str, list[Row]] = {name: [] for name in TITLES}
    for row in rows:
        found.setdefault(row.readout, []).append(row)
    return {name: own for name, own in found.items() if own}


def summarise(rows: Sequence[Row], name: str, **conditions: Collection[str]) -> Summary | None:
    """Average a score over the rows whose fields have one of the given values.

    Every MDP and condition has the same weight, and the interval is over seeds. Networks that
    diverged have scores that are not numbers and make the mean one.

    Args:
        rows: the rows.
        name: of a score.
        **conditions: allowed values of fields of `Row`, such as `policy=["greedy"]`.

    Returns:
        The summary, or None where no row is selected.

    >>> row = Row("l", "l", "m", "p", "n", 0.1, 1.0, 0, {"noise_ratio": 0.5})
    >>> other = row._replace(seed=1, scores={"noise_ratio": 0.7})
    >>> round(summarise([row, other], "noise_ratio", mdp=["m"]).mean, 3)
    0.6
    """
    by_seed: dict[int, list[float]] = {}
    for row in rows:
        if all(getattr(row, name) in allowed for name, allowed in conditions.items()):
            by_seed.setdefault(row.seed, []).append(row.scores[name])
    if not by_seed:
        return None
    samples = np.array([np.mean(by_seed[seed]) for seed in sorted(by_seed)])
    if len(samples) < 2:
        return Summary(float(samples[0]), float("nan"), samples)
    mean, half = compute_confidence_interval(samples)
    return Summary(float(mean), float(half), samples)


def tabulate(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return the mean and half the 95% interval of every score, per readout and policy.

    Args:
        rows: those of `measure`.

    Returns:
        One record per readout and policy: means by score, and the half intervals beside them.
    """
    records = []
    for readout, own in split_readouts(rows).items():
        for policy in POLICIES:
            record: dict[str, Any] = {"readout": readout, "policy": policy}
            for name in SCORES:
                found = summarise(own, name, policy=[policy])
                if found is not None:
                    record[name] = found.mean
                    record[f"{name}_half_interval"] = found.half_interval
            records.append(record)
    return records


def format_table(rows: Sequence[Row]) -> Iterator[str]:
    """Yield a table per policy: a line per readout, mean and half the 95% interval over seeds.

    Args:
        rows: those of `measure`.

    Yields:
        The lines.
    """
    for policy in POLICIES:
        yield f"{POLICY_TITLES[policy]}: means over MDPs and distractors, and half 95% intervals"
        yield "".join([f"{'loss':<22}", *(f"{title:<16}" for title in COLUMNS.values())]).rstrip()
        for readout, own in split_readouts(rows).items():
            found = [summarise(own, name, policy=[policy]) for name in COLUMNS]
            cells = "".join(f"{'' if each is None else str(each):<16}" for each in found)
            yield f"{TITLES.get(readout, readout):<22}{cells}".rstrip()


def build_tables(rows: Sequence[Row]) -> dict[str, list[str]]:
    """Build the Markdown tables of the report.

    Args:
        rows: those of `measure`.

    Returns:
        The lines of each table that the rows allow, by name: "accuracy" and "errors" by policy,
        over all MDPs; "held-out", the same scores on the held-out MDPs; "distractors"; "mdps", the
        rank correlation by MDP; "bounds", violations and neighbours by policy.
    """
    found = {row.mdp for row in rows}
    held_out = [name for name in ENVIRONMENTS if ENVIRONMENTS[name].held_out and name in found]
    policies: list[Column] = [({"policy": [policy]}, policy) for policy in POLICIES]
    noises: list[Column] = [({"noise": [noise]}, title) for noise, title in NOISE_TITLES.items()]
    mdps: list[Column] = [({"mdp": [name]}, f"`{name}`") for name in ENVIRONMENTS if name in found]
    tests: list[Column] = [({**where, "mdp": held_out}, title) for where, title in policies]
    ranks = {
        f"{reference}_rank_correlation": title for reference, title in REFERENCE_TITLES.items()
    }
    errors = {"own_error": "error", "own_scaled_error": "scaled error"}
    bounds = {
        "policy_violations": "violations",
        "own_neighbours": "neighbours, own",
        "on_policy_neighbours": f"neighbours, {REFERENCE_TITLES['on_policy']}",
    }
    noise = {"own_rank_correlation": "rank", "noise_ratio": "noise"}
    tables = {
        "accuracy": _format_markdown(rows, ranks, policies),
        "errors": _format_markdown(rows, errors, policies),
        "distractors": _format_markdown(rows, noise, noises),
        "mdps": _format_markdown(rows, {"own_rank_correlation": ""}, mdps),
        "bounds": _format_markdown(rows, bounds, policies),
    }
    if held_out:
        heads = ranks | {"own_scaled_error": "scaled error"}
        tables["held-out"] = _format_markdown(rows, heads, tests)
    return tables


def write_tables(rows: Sequence[Row], folder: str | os.PathLike[str]) -> Path:
    """Write the Markdown tables of the report to `tables.txt`.

    Args:
        rows: those of `measure`.
        folder: where it is written.

    Returns:
        The path.
    """
    path = Path(folder) / "tables.txt"
    tables = build_tables(rows).items()
    lines = [line for name, table in tables for line in (f"{name}:", "", *table, "")]
    with write_atomically(path) as temporary:
        temporary.write_text("\n".join(lines), encoding="utf-8")
    return path


def build_settings_table(rows: Sequence[Row]) -> list[str]:
    """Build a Markdown table of the selected settings and of what tuning scored.

    Args:
        rows: of tuning, those of `tuning.csv`.

    Returns:
        The lines: per loss the setting, its mean scaled error against the fixed point of the loss,
        and that of the worst setting.
    """
    heads = "loss | learning rate | reward scale | scaled error | worst of the settings"
    lines = [f"| {heads} |", f"|{'---|' * 5}"]
    for loss in dict.fromkeys(row.loss for row in rows):
        errors = average_errors([row for row in rows if row.loss == loss])
        best = min(errors, key=lambda setting: errors[setting])
        numbers = f"{best.learning_rate:g} | {best.reward_scale:g} | {errors[best]:.2f}"
        title = METHODS[loss].readouts[0].title if loss in METHODS else loss
        lines.append(f"| {title} | {numbers} | {max(errors.values()):.2f} |")
    return lines


def build_reference_table(environments: Sequence[Environment]) -> list[str]:
    """Build a Markdown table of the fixed points themselves: what a perfect fit would score.

    Args:
        environments: the MDPs over which the mean is taken.

    Returns:
        The lines: per readout and policy, the rank correlation of its fixed point with d^pi and d~,
        and the scaled error of a constant distance against the fixed point.
    """
    heads = [
        f"{head}, {policy}"
        for head in (REFERENCE_TITLES["on_policy"], REFERENCE_TITLES["bisimulation"], "constant")
        for policy in POLICIES
    ]
    lines = [f"| fixed point of | {' | '.join(heads)} |", f"|---|{'---|' * len(heads)}"]
    for method in METHODS.values():
        for readout in () if method.is_control else method.readouts:
            cells = []
            for metric in ("on_policy", "bisimulation", None):
                for policy in POLICIES:
                    values = []
                    for each in environments:
                        own = each.get_distance(readout.own, policy)
                        if metric is None:
                            values.append(score(np.ones(own.shape), own).scaled_error)
                        else:
                            reference = each.get_distance(metric, policy)
                            values.append(score(own, reference).rank_correlation)
                    cells.append(f"{np.mean(values):.2f}")
            lines.append(f"| {readout.title} | {' | '.join(cells)} |")
    return lines


def _format_markdown(
    rows: Sequence[Row],
    scores: Mapping[str, str],
    columns: Sequence[Column],
) -> list[str]:
    """Return a table with a row per readout, and a column per score and condition."""
    heads = [
        f"{head}, {title}".removeprefix(", ") for head in scores.values() for _, title in columns
    ]
    lines = [f"| loss | {' | '.join(heads)} |", f"|---|{'---|' * len(heads)}"]
    for readout, own in split_readouts(rows).items():
        found = [summarise(own, name, **where) for name in scores for where, _ in columns]
        cells = " | ".join("" if each is None else str(each) for each in found)
        lines.append(f"| {TITLES.get(readout, readout)} | {cells} |")
    return lines


def draw_figures(rows: Sequence[Row], folder: str | os.PathLike[str]) -> list[Path]:
    """Draw `accuracy.png`, by policy, and `distractors.png`.

    Args:
        rows: those of `measure`.
        folder: where they are written.

    Returns:
        The paths.
    """
    from bisimetric import views

    note = f"mean and 95% interval of {len({row.seed for row in rows})} seeds"
    by_policy = {
        "own_rank_correlation": "rank correlation, own fixed point",
        "on_policy_rank_correlation": "rank correlation, d^pi",
        "bisimulation_rank_correlation": "rank correlation, d~",
        "own_scaled_error": "scaled error, own fixed point",
    }
    by_noise = {
        "own_rank_correlation": "rank correlation, own fixed point",
        "own_scaled_error": "scaled error, own fixed point",
        "own_neighbours": "nearest neighbours, own",
        "noise_ratio": "two renderings / two states",
    }
    figures = {
        "accuracy": views.plot_scores(
            _group(rows, by_policy, "policy", POLICY_TITLES),
            title=f"All MDPs and distractors: {note}",
        ),
        "distractors": views.plot_scores(
            _group(rows, by_noise, "noise", NOISE_TITLES),
            title=f"All MDPs and policies: {note}",
        ),
    }
    paths = []
    for name, figure in figures.items():
        paths.append(Path(folder) / f"{name}.png")
        views.save_figure(figure, paths[-1])
    return paths


def _group(
    rows: Sequence[Row], scores: Mapping[str, str], field: str, titles: Mapping[str, str]
) -> dict[str, dict[str, dict[str, NDArray[np.float64]]]]:
    """Return samples by score, readout and the values of a field of the rows."""
    panels: dict[str, dict[str, dict[str, NDArray[np.float64]]]] = {}
    for name, title in scores.items():
        panel = panels.setdefault(title, {})
        for readout, own in split_readouts(rows).items():
            line = panel.setdefault(TITLES.get(readout, readout), {})
            for value, label in titles.items():
                found = summarise(own, name, **{field: [value]})
                if found is not None and np.isfinite(found.samples).all():
                    line[label] = found.samples
    return panels
