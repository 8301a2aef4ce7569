"""Verdicts on the claims about Atari: from planted records, and those that are recorded."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bisimetric.paper import claims
from bisimetric_atari.paper import claim_outcomes
from bisimetric_atari.paper.sweep_results import SweepRow, SweepShape, write_table

REPORTS = Path(__file__).parents[2] / "docs" / "reports" / "atari"
PAPER = SweepShape()


def make_row(shape: SweepShape, rate: float, correlation: float, dead: int = 0) -> SweepRow:
    return SweepRow(*shape, rate, 2, dead, correlation, 0.01, 0.2, 5.0, 0.1)


def test_recorded_outcomes_are_those_of_the_reports() -> None:
    recorded = claims.load_record()
    for name, outcome in claim_outcomes.summarise(REPORTS).items():
        assert recorded[name] == outcome, "run docs/reports/paper/update.py"


def test_tables_are_read_as_written(tmp_path: Path) -> None:
    rows = [make_row(PAPER, 7.5e-5, 0.9), make_row(PAPER._replace(units=64), 1e-3, 0.5, 1)]
    write_table(tmp_path / "sweep.csv", rows)
    assert claim_outcomes.read_table(tmp_path / "sweep.csv") == rows


def test_the_paper_is_ranked_with_its_own_learning_rates() -> None:
    wide = PAPER._replace(units=64)
    tables = {
        game: [make_row(PAPER, own, 0.9), make_row(PAPER, other, 0.7), make_row(wide, 1e-3, wider)]
        for game, own, other, wider in (
            ("SpaceInvaders", 7.5e-5, 1e-3, 0.8),
            ("Asterix", 7.5e-5, 1e-3, 0.8),
            ("Pong", 1e-3, 7.5e-5, 0.8),
        )
    }
    best = claim_outcomes.judge_sweep(tables)
    assert best.verdict == "holds"
    assert "mean correlation in Space Invaders, Asterix, Pong 0.900, 1 of 4 settings" in best.text
    tables["Asterix"][2] = make_row(wide, 1e-3, 0.99)
    tables["Pong"][2] = make_row(wide, 1e-3, 0.99)
    beaten = claim_outcomes.judge_sweep(tables)
    assert beaten.verdict == "does not hold"
    assert "2 layers of 64, learning rate 0.001" in beaten.text
    # One game does not answer for all.
    alone = claim_outcomes.judge_sweep({"Asterix": tables["Asterix"]})
    assert alone.verdict == "not tested"
    assert "2 of 3 settings" in alone.text
    assert "Space Invaders and Pong were not run" in alone.text
    # A shape that one game lacks is not ranked.
    del tables["Asterix"][2]
    assert claim_outcomes.judge_sweep(tables).verdict == "holds"


@pytest.mark.parametrize(("own", "verdict"), [(0.9, "holds"), (0.6, "does not hold")])
def test_the_learning_rate_of_pong(own: float, verdict: str) -> None:
    table = [make_row(PAPER, 1e-3, own), make_row(PAPER, 7.5e-5, 0.8, dead=1)]
    found = claim_outcomes.judge_rate(table)
    assert found.verdict == verdict
    assert "1 of 2 collapsed" in found.text
    assert claim_outcomes.judge_rate(table[:1]).verdict == "not tested"


def test_a_run_is_stable_if_its_distances_no_longer_grow() -> None:
    grown = {"step": [1, 5, 10], "distance": [1.0, 4.0, 8.0], "error": [0.9, 0.5, 0.2]}
    stable = {"step": [1, 5, 10], "distance": [1.0, 8.0, 8.1], "error": [0.9, 0.2, 0.2]}
    both = {"Pong": stable, "Asterix": grown}
    assert claim_outcomes.judge_half({"Pong": stable}).verdict == "holds"
    assert claim_outcomes.judge_half(both).verdict == "differs"
    assert claim_outcomes.judge_half({"Pong": grown}).verdict == "does not hold"


def test_observations_are_judged_over_all_games() -> None:
    def make_claim(holds: bool | None) -> dict[str, Any]:
        numbers = {"auc": 0.9, "p_value": 0.01}
        return {
            "name": "game starts",
            "holds": holds,
            "holds_for_reference": True,
            "statistics": {} if holds is None else numbers,
        }

    def judge(*holds: bool | None) -> str:
        games = ("Pong", "Asterix", "SpaceInvaders")
        records = {
            game: {"claims": [make_claim(each)]} for game, each in zip(games, holds, strict=False)
        }
        return claim_outcomes.judge_observation(records, ("game starts",), "auc").verdict

    assert judge(True, True) == "holds"
    assert judge(True, False) == "differs"
    assert judge(False, None) == "does not hold"


def test_the_record_of_the_reports_is_finite() -> None:
    for path in sorted((REPORTS / "eight").rglob("*.json")):
        for claim in json.loads(path.read_text("utf-8"))["claims"]:
            assert all(math.isfinite(each) for each in claim["statistics"].values())
    assert np.isfinite([row.loss for row in _list_rows()]).all()


def _list_rows() -> list[SweepRow]:
    files = sorted(REPORTS.glob("*/sweep-full.csv"))
    assert files
    return [row for path in files for row in claim_outcomes.read_table(path)]
