"""Each command of `bisimetric atari` with `--json` prints the numbers of its report."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from bisimetric.learned import LearnedDistance
from bisimetric_atari.cli import COMMANDS
from test_cli import AGENT, SMALL
from tests.cli.test_json_commands import Case, Found, check_case
from tests.commands import Run
from tests.learned_references import compile_quickly  # noqa: F401 - a fixture

pytestmark = pytest.mark.usefixtures("compile_quickly")

PLAYED = ("Pong", "--agent", "player.py:mine")
TRAIN_AGENT = (
    "Pong -o out --num-envs 2 --batch-size 16 --log-every 40 --capacity 200 "
    "--learning-starts 40 --eval-episodes 1 --steps 60"
)
SWEEP = (
    "--steps 240 --num-envs 2 --quick --updates 10 --num-seeds 2 --learning-rates 1e-3 "
    "--batch-size 128 --target-update-steps 500 --layers 2 --units 16"
)


def check_train_agent(found: Found) -> None:
    assert found["steps"] == 60
    assert len(found["score"]) == 1
    assert found["game"] == {"name": "Pong", "actions": 6}


def check_atari_learn(found: Found) -> None:
    metric = LearnedDistance.load("out/metric.safetensors")
    assert found["updates"] == metric.metadata["updates"]
    assert found["loss"] == float(metric.history["loss"][-1])
    assert found["data"]["steps"] == 240


def check_atari_evaluate(found: Found) -> None:
    assert found["data"] == 3_000
    assert found["accuracy"]["included"]["self_distance"] == 0
    assert found["accuracy"]["included"]["correlation"] > 0.9


def check_atari_show(found: Found) -> None:
    record = json.loads(Path("shown/claims.json").read_text())
    assert found["frames"] == record["frames"] == 60
    assert len(found["claims"]) == len(record["claims"])
    assert found["distances"]["from"] == 7


def check_sweep(found: Found) -> None:
    with open("sweep/sweep.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(found["configurations"]) == len(rows) > 0
    for row, expected in zip(found["configurations"], rows, strict=True):
        assert {name: float(each) for name, each in expected.items()} == pytest.approx(
            {name: np.nan if each is None else each for name, each in row.items()},
            rel=1e-5,
            nan_ok=True,
        )


CASES = {
    "train-agent": Case(
        tuple(TRAIN_AGENT.split()),
        "steps score seconds game.actions",
        check_train_agent,
    ),
    "learn": Case(
        (*PLAYED, *SMALL, "--steps", "240", "-o", "out"),
        "data.steps updates loss seconds quality.residual largest.distance",
        check_atari_learn,
    ),
    "evaluate": Case(
        ("Pong", "--steps", "3k", "--num-envs", "2", "--num-states", "100"),
        "data accuracy.included.correlation accuracy.castro2020.relative_error",
        check_atari_evaluate,
    ),
    "show": Case(
        ("Pong", "-o", "shown", "--steps", "60", "--from", "7", "--no-videos"),
        "frames scores distances.mean distances.largest metric.updates",
        check_atari_show,
    ),
    "sweep": Case((*PLAYED, *SWEEP.split(), "-o", "sweep"), "", check_sweep),
}


def test_every_command_has_a_case() -> None:
    assert {*CASES} == {*COMMANDS.commands}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_the_object_holds_the_numbers_of_the_report(run: Run, tmp_path: Path, name: str) -> None:
    (tmp_path / "player.py").write_text(AGENT)
    check_case(run, f"atari {name}", CASES[name])
