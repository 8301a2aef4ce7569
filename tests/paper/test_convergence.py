"""The convergence experiment: monotone errors, the lemma, and exact numbers of steps."""

from __future__ import annotations

import dataclasses
import json
import math
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bisimetric import exact, paper, sampled, worlds
from bisimetric.distance import Distance
from bisimetric.errors import InputError
from bisimetric.paper import convergence
from bisimetric.paper.convergence import ConvergenceCurves, ConvergenceResults, Kind
from bisimetric.sampled.samplers import SAMPLERS

SMALL: dict[str, Any] = {"num_seeds": 2, "steps": 1_000_000, "discount": 0.8}
KINDS: tuple[Kind, ...] = ("bisimulation", "on_policy")


@pytest.fixture(scope="module", params=KINDS)
def curves(request: pytest.FixtureRequest) -> ConvergenceCurves:
    return convergence.measure(request.param, **SMALL)


@pytest.fixture(scope="module")
def short() -> ConvergenceResults:
    """Too few steps to reach the target error."""
    found = [convergence.measure(kind, num_seeds=2, steps=2_000) for kind in KINDS]
    return ConvergenceResults(found[0], found[1], {})


def compute_reference(curves: ConvergenceCurves) -> Distance:
    mdp = worlds.load(convergence.WORLDS[curves.kind], discount=0.8)
    found: Distance = getattr(exact, curves.kind)(mdp, tol=1e-9)
    return found


class TestMeasure:
    def test_shapes(self, curves: ConvergenceCurves) -> None:
        assert curves.samplers == ("uniform", "trajectories", "all-actions", "prioritised")
        assert curves.seeds.tolist() == [0, 1]
        assert curves.errors.shape == curves.excess.shape == (4, 2, len(curves.steps))
        assert curves.steps_to_target.shape == (4, 2)
        assert curves.steps[[0, -1]].tolist() == [1_000, 1_000_000]

    def test_errors_decrease_below_the_floor(self, curves: ConvergenceCurves) -> None:
        for errors in curves.errors:
            shown = ~np.isnan(errors).any(axis=0)
            assert shown[: shown.sum()].all()
            errors = errors[:, shown]
            assert (np.diff(errors, axis=1) <= 0).all()
            assert (errors[:, 0] > 0.1).any()
            assert errors[:, -1].max() <= convergence.ERROR_FLOOR < errors[:, -2].max()

    def test_no_estimate_exceeds_the_metric(self, curves: ConvergenceCurves) -> None:
        assert curves.lemma_holds
        assert 0 <= curves.max_excess <= curves.max_allowed_excess < 1e-11
        np.testing.assert_array_equal(np.isnan(curves.excess), np.isnan(curves.errors))

    def test_errors_are_those_of_the_run(self, curves: ConvergenceCurves) -> None:
        reference, column = compute_reference(curves), 7
        for number, sampler in enumerate(SAMPLERS.values()):
            run = sampled.SampledRun(curves.kind, reference.mdp, sampler=sampler(), seed=1)
            run.advance(int(curves.steps[column]))
            assert curves.errors[number, 1, column] == np.abs(run.values - reference.values).max()
            assert curves.excess[number, 1, column] == (run.values - reference.values).max()

    def test_steps_to_target_is_the_first_step(self, curves: ConvergenceCurves) -> None:
        reference = compute_reference(curves)
        for number, sampler in enumerate(SAMPLERS.values()):
            for seed in range(2):
                run = sampled.SampledRun(curves.kind, reference.mdp, sampler=sampler(), seed=seed)
                run.advance(int(curves.steps_to_target[number, seed]) - 1)
                assert convergence.max_error(run, reference) > curves.target_error
                run.advance(1)
                assert convergence.max_error(run, reference) <= curves.target_error

    def test_errors_depend_on_the_seed(self, curves: ConvergenceCurves) -> None:
        again = convergence.measure(curves.kind, **SMALL)
        np.testing.assert_array_equal(again.errors, curves.errors)
        np.testing.assert_array_equal(again.steps_to_target, curves.steps_to_target)
        assert (curves.steps_to_target[:, 0] != curves.steps_to_target[:, 1]).all()

    def test_more_seeds_and_steps_only_append(self, curves: ConvergenceCurves) -> None:
        more = convergence.measure(curves.kind, num_seeds=3, steps=3_000, discount=0.8)
        columns = len(more.steps)
        np.testing.assert_array_equal(more.steps, curves.steps[:columns])
        both = ~np.isnan(more.errors[:, :2]) & ~np.isnan(curves.errors[:, :, :columns])
        assert both.sum() > 4 * columns
        np.testing.assert_array_equal(more.errors[:, :2][both], curves.errors[:, :, :columns][both])

    def test_an_excess_is_found(self, monkeypatch: pytest.MonkeyPatch) -> None:
        honest = exact.on_policy

        def half(*args: Any, **options: Any) -> Distance:
            d: Distance = honest(*args, **options)
            return dataclasses.replace(d, values=d.values / 2)

        monkeypatch.setattr(exact, "on_policy", half)
        curves = convergence.measure("on_policy", num_seeds=2, steps=3_000, discount=0.5)
        assert not curves.lemma_holds
        assert curves.max_excess > 0.1
        assert any(
            "FAILS" in line
            for line in convergence.format_table(ConvergenceResults(curves, curves, {}))
        )

    def test_an_unreached_target_is_infinite(self, short: ConvergenceResults) -> None:
        for curves in (short.bisimulation, short.on_policy):
            assert np.isinf(curves.steps_to_target).all()
            assert not np.isnan(curves.errors).any()
            assert curves.lemma_holds


class TestFormatTable:
    def test_one_row_per_sampler(self) -> None:
        steps_to_target = np.array([[900.0, 1100], [450, 550], [1000, 1000], [100, math.inf]])
        one = convergence.measure("on_policy", num_seeds=2, steps=1_000, discount=0.5)
        one = dataclasses.replace(one, steps_to_target=steps_to_target)
        found = list(convergence.format_table(ConvergenceResults(one, one, {})))
        assert found[0] == (
            "d^pi, the on-policy distance: pairs of transitions until the largest error is at most "
            "0.001, 2 seeds"
        )
        assert found[1].split() == ["sampler", "mean", "95%", "interval", "speed-up"]
        # t of one degree of freedom is 12.706; s / sqrt(2) is 100 and 50.
        assert found[2].split() == ["uniform", "1,000", "-271", "to", "2,271", "1.00"]
        assert found[3].split() == ["trajectories", "500", "-135", "to", "1,135", "2.00"]
        assert found[4].split() == ["all-actions", "1,000", "1,000", "to", "1,000", "1.00"]
        assert found[5].split() == ["prioritised", "-", "not", "within", "1,000"]
        assert found[6].split()[:2] == ["holds", "d_n"]
        assert len(found) == 14

    def test_no_speed_up_over_an_unreached_target(self) -> None:
        steps_to_target = np.array([[math.inf, 900.0], [450, 550], [1000, 1000], [100, 100]])
        one = convergence.measure("on_policy", num_seeds=2, steps=1_000, discount=0.5)
        one = dataclasses.replace(one, steps_to_target=steps_to_target)
        found = list(convergence.format_table(ConvergenceResults(one, one, {})))
        assert found[2].split() == ["uniform", "-", "not", "within", "1,000"]
        assert found[3].split()[-2:] == ["1,135", "-"]


class TestReproduce:
    def test_files(self, tmp_path: Path) -> None:
        folder = tmp_path / "the paper's" / "figures"
        results = paper.convergence.reproduce(folder, **SMALL)
        assert sorted(path.name for path in folder.iterdir()) == [
            "convergence.json",
            "convergence.png",
        ]
        assert (folder / "convergence.png").read_bytes().startswith(b"\x89PNG")
        record = json.loads((folder / "convergence.json").read_text())
        assert record["metadata"] == results.metadata
        for curves in (results.bisimulation, results.on_policy):
            stored = record[curves.kind]
            assert stored["world"] == convergence.WORLDS[curves.kind]
            assert stored["steps"] == curves.steps.tolist()
            for number, name in enumerate(curves.samplers):
                row = stored["samplers"][name]
                assert row["steps_to_target"] == curves.steps_to_target[number].tolist()
                assert row["mean"] == curves.steps_to_target[number].mean()
                assert row["errors"][1] == [
                    error for error in curves.errors[number, 1].tolist() if not math.isnan(error)
                ]

    def test_the_stored_command_writes_the_same_file(self, tmp_path: Path) -> None:
        options: dict[str, Any] = {"num_seeds": 2, "steps": 1_000, "discount": 0.5}
        convergence.reproduce(tmp_path / "it's", **options)
        path = tmp_path / "it's" / "convergence.json"
        record = json.loads(path.read_text())
        python, flag, code = shlex.split(record["metadata"]["command"])
        assert (python, flag) == ("python", "-c")
        path.unlink()
        exec(code, {})
        again = json.loads(path.read_text())
        assert again["metadata"].pop("seconds") > 0
        assert record["metadata"].pop("seconds") > 0
        assert again == record

    def test_a_given_command_is_stored(self, tmp_path: Path) -> None:
        metadata = convergence.reproduce(
            tmp_path, num_seeds=2, steps=1_000, discount=0.5, command="make figures"
        ).metadata
        assert metadata["command"] == "make figures"

    def test_an_unreached_target_is_null(self, tmp_path: Path) -> None:
        convergence.reproduce(tmp_path, num_seeds=2, steps=1_000)
        record = json.loads((tmp_path / "convergence.json").read_text())
        row = record["bisimulation"]["samplers"]["uniform"]
        assert row["steps_to_target"] == [None, None]
        assert row["mean"] is row["half_interval"] is None

    def test_a_file_as_folder_raises(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("old")
        with pytest.raises(NotADirectoryError, match=r"file: it is a file; name a folder\."):
            convergence.reproduce(tmp_path / "file")
        assert (tmp_path / "file").read_text() == "old"

    def test_a_folder_as_file_raises_first(self, tmp_path: Path) -> None:
        (tmp_path / "convergence.json").mkdir()
        with pytest.raises(IsADirectoryError, match=r"convergence.json: it is a folder"):
            convergence.reproduce(tmp_path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_seeds": 1}, r"num_seeds is 1 and must be a whole number, at least 2"),
        ({"num_seeds": 2.5}, r"num_seeds is 2\.5 and must be a whole number"),
        ({"steps": 999}, r"steps is 999 and .* at least 1000, the first checkpoint"),
        ({"target_error": 1e-7}, r"target_error is 1e-07 and must be a number, at least 1e-06"),
        ({"target_error": math.nan}, r"target_error is nan and must be a number"),
        ({"discount": 1.0}, r"discount"),
    ],
)
def test_options_are_validated(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        convergence.measure("on_policy", **options)
    with pytest.raises(InputError, match=message):
        convergence.reproduce(tmp_path / "new", **options)
    assert list(tmp_path.iterdir()) == []


def test_unknown_kind() -> None:
    kind: Any = "lax"
    with pytest.raises(InputError, match=r"kind is 'lax' and must be 'bisimulation' or"):
        convergence.measure(kind)
