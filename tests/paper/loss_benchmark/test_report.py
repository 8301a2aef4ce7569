"""The report of the loss benchmark: its tables, settings and claims are those of its files."""

from __future__ import annotations

import functools
import math
from pathlib import Path

import pytest

from bisimetric.paper.loss_benchmark import (
    ENVIRONMENTS,
    METHODS,
    Protocol,
    Row,
    build_reference_table,
    build_settings_table,
    build_tables,
    draw_figures,
    read_rows,
    select_setting,
)
from bisimetric.paper.loss_benchmark import environments as benchmark_mdps
from bisimetric.paper.loss_benchmark.environments import TUNING
from bisimetric.paper.loss_benchmark.protocol import DEFAULT_SETTING, SELECTED

REPORTS = Path(__file__).parents[3] / "docs" / "reports"

read = functools.cache(read_rows)


def read_page() -> str:
    return (REPORTS / "losses.md").read_text(encoding="utf-8")


def list_rows() -> list[Row]:
    return read(REPORTS / "losses" / "results.csv")


def test_the_tables_of_the_page_are_those_of_the_results() -> None:
    page = read_page()
    for table in build_tables(list_rows()).values():
        assert "\n".join(table) in page


def test_the_settings_were_selected_by_tuning() -> None:
    tuning = read(REPORTS / "losses" / "tuning.csv")
    assert "\n".join(build_settings_table(tuning)) in read_page()
    assert {row.mdp for row in tuning} == set(TUNING), "held-out MDPs are not for tuning"
    assert not {row.seed for row in tuning} & {row.seed for row in list_rows()}
    losses = [name for name, method in METHODS.items() if not method.is_control]
    for loss in losses:
        rows = [row for row in tuning if row.loss == loss]
        assert len(rows) == 5 * 2 * 3 * 6 * 3, "equal budgets"
        assert select_setting(rows) == SELECTED[loss]
    assert set(SELECTED) == set(losses)


def test_every_loss_has_ten_seeds_on_every_mdp() -> None:
    runs = {(row.readout, row.mdp, row.policy, row.noise, row.seed) for row in list_rows()}
    readouts = [each.name for method in METHODS.values() for each in method.readouts]
    assert len(runs) == len(list_rows()) == len(readouts) * len(ENVIRONMENTS) * 6 * 10
    for row in list_rows():
        assert row.setting == SELECTED.get(row.loss, DEFAULT_SETTING)
        assert all(math.isfinite(value) for value in row.scores.values())
    assert Protocol().num_seeds == 10


@pytest.mark.slow
def test_the_fixed_points_of_the_page_are_those_of_the_mdps() -> None:
    mdps = [benchmark_mdps.build(name) for name in ENVIRONMENTS]
    assert "\n".join(build_reference_table(mdps)) in read_page()


@pytest.mark.slow
def test_figures_are_drawn_from_the_results(tmp_path: Path) -> None:
    paths = draw_figures(list_rows(), tmp_path)
    assert [path.name for path in paths] == ["accuracy.png", "distractors.png"]
    assert all(path.stat().st_size > 10_000 for path in paths)
