"""Verdicts on the claims of Castro (2020) about Atari, from the records of full runs.

`summarise` reads a folder with, per game, `GAME/sweep-full.csv` of `bisimetric atari sweep`, and
`eight/castro2020/GAME.json` of `bisimetric atari show`; the training histories are those of the
included metrics.
"""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bisimetric.learned import LearnedDistance
from bisimetric.paper.theory_claims import Outcome, Verdict
from bisimetric_atari.paper.experiment import METRICS_FOLDER, PAPER_METRIC
from bisimetric_atari.paper.sweep import get_paper_choice
from bisimetric_atari.paper.sweep_results import SweepRow

GAMES = ("SpaceInvaders", "Asterix", "Pong")
LABELS = {"SpaceInvaders": "Space Invaders", "Asterix": "Asterix", "Pong": "Pong"}
STABLE_GROWTH = 0.05
"""Relative change of the mean distance up to which a run counts as stable."""


def summarise(folder: str | os.PathLike[str]) -> dict[str, Outcome]:
    """Return the outcomes of the claims about Atari by name.

    Args:
        folder: the records of full runs, `docs/reports/atari` in the repository.

    Returns:
        The outcomes.
    """
    target = Path(folder)
    records = {
        game: json.loads((target / "eight" / PAPER_METRIC / f"{game}.json").read_text("utf-8"))
        for game in GAMES
    }
    files = {game: target / game / "sweep-full.csv" for game in GAMES}
    tables = {game: read_table(path) for game, path in files.items() if path.exists()}
    histories = {
        game: LearnedDistance.load(METRICS_FOLDER / PAPER_METRIC / f"{game}.safetensors").history
        for game in GAMES
    }
    return {
        "half": judge_half(histories),
        "starts": judge_observation(records, ("game starts", "level starts"), "auc"),
        "peaks": judge_observation(records, ("peaks at scores",), "auc"),
        "plateaus": judge_observation(
            {"Asterix": records["Asterix"]}, ("plateaus when nothing moves",), "correlation"
        ),
        "farthest": judge_observation(records, ("furthest before",), "fraction"),
        "values": judge_values(records),
        "pixels": judge_pixels(records),
        "pong-rate": judge_rate(tables.get("Pong", ())),
        "sweep": judge_sweep(tables),
    }


def read_table(path: str | os.PathLike[str]) -> list[SweepRow]:
    """Read a table of `sweep_results.write_table`.

    Args:
        path: the CSV file.

    Returns:
        Its rows.
    """
    with open(path, encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    whole = ("batch", "target_update_period", "layers", "units", "num_seeds", "num_dead")
    table = []
    for row in rows:
        cells: dict[str, Any] = {
            name: int(cell) if name in whole else float(cell) for name, cell in row.items()
        }
        table.append(SweepRow(**cells))
    return table


def judge_all_games(holds: Sequence[bool]) -> Verdict:
    """Return "holds" for all games, "differs" for some, "does not hold" for none.

    >>> judge_all_games([True, False]), judge_all_games([False])
    ('differs', 'does not hold')
    """
    if all(holds):
        return "holds"
    return "differs" if any(holds) else "does not hold"


def judge_half(histories: Mapping[str, Mapping[str, Any]]) -> Outcome:
    """Half of the steps reach a stable approximant: from half to all of the updates."""
    parts, stable = [], []
    for game, history in histories.items():
        updates = np.asarray(history["step"])
        half = int(np.argmin(np.abs(updates - updates[-1] / 2)))
        distance, error = np.asarray(history["distance"]), np.asarray(history["error"])
        stable.append(abs(distance[-1] / distance[half] - 1) <= STABLE_GROWTH)
        parts.append(
            f"{LABELS[game]} {distance[half]:.1f} to {distance[-1]:.1f}, relative error "
            f"{error[half]:.2f} to {error[-1]:.2f}"
        )
    text = f"mean distance from half to all of the updates: {'; '.join(parts)}"
    return Outcome(judge_all_games(stable), text, "one network per game, 150,000 updates")


def _find(claims: Sequence[Mapping[str, Any]], prefix: str) -> list[Mapping[str, Any]]:
    return [each for each in claims if each["name"].startswith(prefix)]


def judge_observation(
    records: Mapping[str, Mapping[str, Any]], prefixes: Sequence[str], statistic: str
) -> Outcome:
    """An observation of the paper as a permutation test per game."""
    parts, verdicts = [], []
    for prefix in prefixes:
        for game, record in records.items():
            for found in _find(record["claims"], prefix):
                if found["holds"] is None:
                    continue
                verdicts.append(bool(found["holds"]))
                reference = found["holds_for_reference"]
                statistics = found["statistics"]
                parts.append(
                    f"{LABELS[game]}{', levels' if prefix == 'level starts' else ''} "
                    f"{'yes' if found['holds'] else 'no'} ({statistics[statistic]:.2f}, p = "
                    f"{statistics['p_value']:.2g}; exact distances: {'yes' if reference else 'no'})"
                )
    return Outcome(judge_all_games(verdicts), ", ".join(parts), "8 games per agent")


def judge_values(records: Mapping[str, Mapping[str, Any]]) -> Outcome:
    """Differences of values: the bound of theorem 3, and the correlation with the distance."""
    parts, bounded = [], []
    for game, record in records.items():
        (found,) = _find(record["claims"], "correlates with the difference of values")
        share = float(found["statistics"]["bounded"])
        bounded.append(share >= 0.99)
        parts.append(
            f"{LABELS[game]} bounded in {share:.1%} of the frames, rank correlation "
            f"{found['statistics']['correlation']:.2f}"
        )
    return Outcome(judge_all_games(bounded), "; ".join(parts), "8 games per agent")


def judge_pixels(records: Mapping[str, Mapping[str, Any]]) -> Outcome:
    """Learned distances follow the exact ones better than pixels and features do."""
    parts, better = [], []
    for game, record in records.items():
        numbers = [
            float(
                _find(claims, "correlates with the exact distance")[0]["statistics"]["correlation"]
            )
            for claims in (
                record["claims"],
                record["baselines"]["pixels"],
                record["baselines"]["features"],
            )
        ]
        better.append(numbers[0] > max(numbers[1:]))
        parts.append(f"{LABELS[game]} {numbers[0]:.2f}, {numbers[1]:.2f}, {numbers[2]:.2f}")
    text = (
        f"rank correlation with exact distances, learned, pixels, features: {'; '.join(parts)}; "
        "most other observations hold for pixels or features too"
    )
    return Outcome(judge_all_games(better), text, "8 games per agent")


def judge_rate(table: Sequence[SweepRow]) -> Outcome:
    """Pong: the learning rate 0.001 in place of 0.000075, with the paper's shape."""
    shape, paper_rate = get_paper_choice("Pong")
    _, other_rate = get_paper_choice("Asterix")
    rows = {row.learning_rate: row for row in table if row.setting[0] == shape}
    if not {paper_rate, other_rate} <= rows.keys():
        return Outcome("not tested", "the sweep of Pong was not run", "0 seeds")
    chosen, other = rows[paper_rate], rows[other_rate]
    text = "; ".join(
        f"{row.learning_rate:g}: correlation with exact distances {row.correlation:.3f}, relative "
        f"error {row.error:.2f}, {row.num_dead} of {row.num_seeds} collapsed"
        for row in (chosen, other)
    )
    holds = chosen.correlation > other.correlation
    return Outcome("holds" if holds else "does not hold", text, f"{chosen.num_seeds} seeds")


def judge_sweep(tables: Mapping[str, Sequence[SweepRow]]) -> Outcome:
    """The paper's shape with its learning rates, against other shapes and rates in all games."""
    shape, _ = get_paper_choice("Pong")
    own_rates = {game: get_paper_choice(game)[1] for game in tables}
    mixed = len(set(own_rates.values())) > 1
    scores: dict[tuple[Any, ...], list[float]] = {}
    for game, table in tables.items():
        for row in table:
            rates = [f"{row.learning_rate:g}"]
            if mixed and np.isclose(row.learning_rate, own_rates[game]):
                rates.append("paper")
            for rate in rates:
                scores.setdefault((*row.setting[0], rate), []).append(row.correlation)
    complete = {name: np.mean(each) for name, each in scores.items() if len(each) == len(tables)}
    ranked = sorted(complete, key=lambda name: -complete[name])
    paper = (*shape, "paper" if mixed else f"{next(iter(own_rates.values())):g}")
    rank = ranked.index(paper) + 1
    num_seeds = min(row.num_seeds for table in tables.values() for row in table)
    text = (
        f"mean correlation in {', '.join(LABELS[game] for game in tables)} {complete[paper]:.3f}, "
        f"{rank} of {len(ranked)} settings; best {complete[ranked[0]]:.3f} with "
        f"{_describe(ranked[0])}"
    )
    verdict: Verdict = "holds" if rank == 1 else "does not hold"
    absent = [LABELS[game] for game in GAMES if game not in tables]
    if absent:
        verdict = "not tested"
        text += f"; {' and '.join(absent)} were not run"
    return Outcome(verdict, text, f"150,000 updates, {num_seeds} seeds")


def _describe(setting: tuple[Any, ...]) -> str:
    """Return a setting in words."""
    batch, period, layers, units, rate = setting
    rates = "the paper's learning rates" if rate == "paper" else f"learning rate {rate}"
    return f"batches of {batch}, period {period}, {layers} layers of {units}, {rates}"
