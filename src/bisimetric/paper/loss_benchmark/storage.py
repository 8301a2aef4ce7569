"""Files of the benchmark: scores as CSV, one row per readout and run; the protocol as JSON."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bisimetric._io import write_atomically
from bisimetric.errors import InputError
from bisimetric.paper.loss_benchmark.environments import Environment
from bisimetric.paper.loss_benchmark.methods import Method
from bisimetric.paper.loss_benchmark.protocol import POLICIES, Run, Setting
from bisimetric.paper.loss_benchmark.scores import (
    Matrix,
    ReferenceScores,
    compute_noise_ratio,
    compute_value_violations,
    score,
)

REFERENCES = ("own", "on_policy", "bisimulation", "mico")
"""The fixed point of the loss, d^pi, d~ and MICo."""
KEY = ("loss", "readout", "mdp", "policy", "noise", "learning_rate", "reward_scale", "seed")
SCORES = (
    *(f"{reference}_{name}" for reference in REFERENCES for name in ReferenceScores._fields),
    "policy_violations",
    "optimal_violations",
    "noise_ratio",
)
TEXTS = KEY[:5]


class Row(NamedTuple):
    """Scores of one readout of one network.

    Attributes:
        loss: name of the method.
        readout: name of the readout.
        mdp: name of the MDP.
        policy: "greedy" or "uniform".
        noise: "none", "iid" or "slow".
        learning_rate: of the setting.
        reward_scale: of the setting.
        seed: of the run.
        scores: by name, see `SCORES`.
    """

    loss: str
    readout: str
    mdp: str
    policy: str
    noise: str
    learning_rate: float
    reward_scale: float
    seed: int
    scores: dict[str, float]

    @property
    def setting(self) -> Setting:
        """The hyperparameters."""
        return Setting(self.learning_rate, self.reward_scale)


def build_rows(
    method: Method,
    environment: Environment,
    runs: Sequence[Run],
    distances: dict[str, Matrix],
    *,
    own_only: bool = False,
) -> list[Row]:
    """Score the learned distances of the runs of a loss on an MDP.

    Args:
        method: the loss.
        environment: the MDP.
        runs: the runs.
        distances: per readout (runs, n, n).
        own_only: whether to score the first readout against its own fixed point alone, for tuning.

    Returns:
        One row per readout and run.
    """
    rows = []
    for readout in method.readouts[: 1 if own_only else None]:
        for run, learned in zip(runs, distances[readout.name], strict=True):
            found: dict[str, float] = {}
            for reference in REFERENCES[: 1 if own_only else None]:
                metric = readout.own if reference == "own" else reference
                scores = score(learned, environment.get_distance(metric, run.policy))
                found |= {f"{reference}_{name}": x for name, x in scores._asdict().items()}
            if not own_only:
                policy, optimal = environment.values[POLICIES.index(run.policy)], -1
                found["policy_violations"] = compute_value_violations(learned, policy)
                found["optimal_violations"] = compute_value_violations(
                    learned, environment.values[optimal]
                )
                found["noise_ratio"] = compute_noise_ratio(learned)
            key = (method.name, readout.name, environment.name, run.policy, run.noise)
            rows.append(Row(*key, *run.setting, run.seed, found))
    return rows


def average_errors(rows: Iterable[Row]) -> dict[Setting, float]:
    """Average the scaled error against the fixed point of the loss, per setting.

    A network that diverged counts as 1, which is the scaled error of the distance 0.
    """
    errors: dict[Setting, list[float]] = {}
    for row in rows:
        error = row.scores["own_scaled_error"]
        errors.setdefault(row.setting, []).append(error if math.isfinite(error) else 1.0)
    return {setting: sum(found) / len(found) for setting, found in errors.items()}


def write_rows(path: Path, rows: Iterable[Row]) -> None:
    """Write rows as CSV, atomically, with five digits."""
    rows = list(rows)
    names = [name for name in SCORES if any(name in row.scores for row in rows)]
    with write_atomically(path) as temporary, open(temporary, "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([*KEY, *names])
        for row in rows:
            cells = (f"{row.scores.get(name, float('nan')):.5g}" for name in names)
            writer.writerow([*row[:5], f"{row[5]:g}", f"{row[6]:g}", row.seed, *cells])


def read_rows(path: Path) -> list[Row]:
    """Read the rows of a file that `write_rows` wrote; none where it does not exist.

    Raises:
        InputError: if the file is damaged.
    """
    if not path.exists():
        return []
    rows = []
    try:
        with open(path, newline="") as file:
            for line in csv.DictReader(file):
                loss, readout, mdp, policy, noise, rate, scale, seed = (
                    line.pop(name) for name in KEY
                )
                scores = {name: float(text) for name, text in line.items()}
                numbers = float(rate), float(scale), int(seed)
                rows.append(Row(loss, readout, mdp, policy, noise, *numbers, scores))
    except (KeyError, ValueError, TypeError, csv.Error) as error:
        raise InputError(f"{path} holds no scores of the benchmark ({error}).") from None
    return rows


def match_protocol(path: Path, protocol: dict[str, Any]) -> None:
    """Write the protocol, or raise InputError if the folder holds results of another one."""
    text = json.dumps(protocol, indent=1)
    if not path.exists():
        with write_atomically(path) as temporary:
            temporary.write_text(text + "\n")
        return
    try:
        found = json.loads(path.read_text())
    except ValueError as error:
        raise InputError(f"{path} holds no protocol of the benchmark ({error}).") from None
    for name, value in json.loads(text).items():
        if found.get(name) != value:
            raise InputError(
                f"{path} is of another protocol: its {name} is {found.get(name)} and here it is "
                f"{value}; give the same, or name another folder."
            )
