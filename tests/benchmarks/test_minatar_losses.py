"""The study of agents with metric losses: statistics by hand, and a run at toy size."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats

import minatar_losses
import minatar_metric
import minatar_report
from minatar_losses import LOSSES, PROTOCOL, list_configurations
from minatar_report import bootstrap_iqm, compute_iqm

COUNT = len(list_configurations())


class TestStatistics:
    def test_the_interquartile_mean_omits_a_quarter_at_either_end(self) -> None:
        # Sorted: -9 0 | 1 2 3 6 | 7 90; of ten numbers two are left out at either end.
        assert compute_iqm(np.array([6.0, 90, 1, -9, 3, 2, 0, 7])) == 3.0
        assert compute_iqm(np.array([-99.0, -9, 1, 2, 3, 4, 5, 9, 99, 999])) == 4.0
        assert compute_iqm(np.array([[np.nan, 1, 2, np.nan], [1, 2, 3, 40]])).tolist() == [1.5, 2.5]
        assert np.isnan(compute_iqm(np.array([np.nan, np.nan])))
        scores = np.random.default_rng(0).normal(size=(5, 11))
        expected = scipy.stats.trim_mean(scores, 0.25, axis=1)
        np.testing.assert_allclose(compute_iqm(scores), expected)

    def test_the_bootstrap_of_two_seeds(self) -> None:
        """The mean of two draws from {0, 1} is 0, 1/2 or 1, with 1/4, 1/2 and 1/4."""
        scores = np.array([[0.0, 1.0]])
        assert bootstrap_iqm(scores) == (0.5, 0.0, 1.0)
        # The difference of two such means is below -1/2 with 1/16, and above 1/2 too.
        assert bootstrap_iqm(scores, scores) == (0.0, -1.0, 1.0)

    def test_the_bootstrap_is_stratified_by_game(self) -> None:
        scores = np.array([[0.0] * 4, [8.0] * 4])
        assert bootstrap_iqm(scores) == (4.0, 4.0, 4.0)

    def test_the_interval_is_that_of_its_distribution(self) -> None:
        """Four seeds: quantiles of the interquartile means of all 256 draws."""
        scores = np.array([0.0, 1.0, 5.0, 6.0])
        draws = compute_iqm(np.array(np.meshgrid(*[scores] * 4)).reshape(4, -1).T)
        _, *interval = bootstrap_iqm(scores[None])
        np.testing.assert_allclose(interval, np.quantile(draws, [0.025, 0.975]), atol=0.5)

    def test_returns_are_normalised_per_game(self) -> None:
        returns = np.zeros((2, COUNT, 3))
        returns[-1, 5], returns[-1, COUNT - 1] = 21.0, 31.0  # the last one has distractors
        learned = {"returns": returns, "random_returns": np.full((1, COUNT, 3), 1.0)}
        hopeless = {"returns": returns * 0, "random_returns": np.full((1, COUNT, 3), 1.0)}
        scaled = minatar_report.normalise_returns({"a": learned, "b": hopeless})
        assert scaled.shape == (1, 2, COUNT, 3)
        assert scaled[0, -1, 5, 0] == 1.0
        assert scaled[0, -1, COUNT - 1, 0] == 1.5
        assert scaled[0, -1, 0, 0] == -0.05


class TestEstimates:
    def test_of_two_steps(self) -> None:
        """Two states, two futures, discount 1/2."""
        first = np.array([[1.0, 0.0], [0.0, 4.0]])  # (steps, futures)
        second = np.array([[0.0, 0.0], [2.0, 0.0]])
        rewards = np.stack([first, second], axis=1)
        values, common, independent = minatar_metric.estimate_distances(rewards, 0.5)
        # V = (1 + 2) / 2 and 1 / 2. Futures 0 and 0: 1 + 2/2; 1 and 1: 0 + 4/2.
        assert float(values[0, 1]) == 1.0
        assert float(common[0, 1]) == 2.0
        # Futures 0 and 1: 1 + 0; 1 and 0: 0 + 2/2. The self-distance is that of two futures.
        assert float(independent[0, 1]) == 1.0
        assert float(common[0, 0]) == 0.0
        assert float(independent[0, 0]) == 3.0

    def test_the_bounds_are_ordered(self) -> None:
        rewards = np.random.default_rng(0).random((6, 5, 4)).astype(np.float32)
        values, common, _ = minatar_metric.estimate_distances(rewards, 0.9)
        assert (values <= common + 1e-6).all()

    def test_rank_correlation_with_ties(self) -> None:
        rng = np.random.default_rng(0)
        x, y = rng.integers(5, size=(2, 40))
        found = float(minatar_metric.correlate_ranks(x, x + y))
        assert found == pytest.approx(scipy.stats.spearmanr(x, x + y).statistic, abs=1e-6)
        assert np.isnan(minatar_metric.correlate_ranks(x, np.zeros(40)))


def test_each_configuration_has_its_options() -> None:
    pytest.importorskip("gymnax")
    options = minatar_losses.build_options(dataclasses.replace(PROTOCOL, seeds=2))
    weights = dict(PROTOCOL.weights)
    for index, (baseline, loss, distractors) in enumerate(list_configurations()):
        for row in (2 * index, 2 * index + 1):
            assert bool(options.layer_norm[row]) == baseline.startswith("LayerNorm")
            predicts = baseline.endswith("self-prediction")
            expected = np.float32(weights["self_prediction"]) if predicts else 0
            assert options.self_prediction[row] == expected
            assert bool(options.distractors[row]) == distractors
            for name in LOSSES:
                assert options.weights[name][row] == np.float32(weights[name]) * (name == loss)


def test_futures_of_equal_states_differ_by_their_random_numbers_only() -> None:
    pytest.importorskip("gymnax")
    import jax
    import jax.numpy as jnp

    from jax_pqn_minatar import Config, Options, Trainer

    trainer = Trainer(Config("SpaceInvaders", num_envs=1, num_features=8))
    options = Options(distractors=1.0)
    state = trainer.create(0, options)
    copies = jax.tree.map(
        lambda x: jnp.broadcast_to(x[:, None], (1, 4, *x.shape[1:])),
        (state.envs, state.observations),
    )
    copies = jax.tree.map(lambda x: jnp.concatenate([x, x]), copies)
    record = jax.jit(
        lambda envs, observations: minatar_metric.record_futures(
            trainer, state.params, options, envs, observations, jax.random.key(3), 60
        )
    )
    rewards = np.asarray(record(*copies))
    assert rewards.shape == (60, 2, 4)
    assert (rewards[:, 0] == rewards[:, 1]).all()
    assert rewards.any()
    assert (rewards[:, 0, 0] != rewards[:, 0, 1]).any()


@pytest.mark.slow
def test_a_run_at_toy_size_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("gymnax")
    protocol = dataclasses.replace(
        PROTOCOL, seeds=2, steps=128, checkpoints=2, episodes=2, max_length=20, states=4,
        futures=3, horizon=20, num_envs=4,
    )  # fmt: skip
    (path,) = minatar_losses.run_games(
        ["Breakout"], protocol, tmp_path, rollout=8, minibatches=2, epochs=1, num_features=8
    )
    with np.load(path) as file:
        assert file["steps"].tolist() == [0, 64, 128]
        assert file["returns"].shape == (3, COUNT, 2)
        learned = file["learned"][-1]
        # Before training, agents of one seed differ in their distances at most.
        assert (file["values"][0, 0] == file["values"][0, 1]).all()
    losses = np.array([loss for _, loss, _ in list_configurations()])
    assert (learned[losses == "none"] == 0).all()
    assert (learned[losses != "none"] > 0).all()
    assert "Breakout: 128 steps" in capsys.readouterr().out


def build_results(rng: np.random.Generator) -> dict[str, Any]:
    shape = (PROTOCOL.checkpoints + 1, COUNT, PROTOCOL.seeds)
    names = ("returns", "values", "common", "independent", "learned", "error", "outside")
    more = ("rank_correlation", "feature_correlation", "noise")
    results: dict[str, Any] = {name: rng.random(shape) for name in (*names, *more)}
    for index, (_, loss, _) in enumerate(list_configurations()):
        results["returns"][-1, index] += 10 * (loss == "mico") - 10 * (loss == "simsr")
    return {
        **results,
        "random_returns": np.zeros((1, *shape[1:])),
        "steps": np.linspace(0, 1e6, shape[0]),
    }


def test_the_report_is_written(tmp_path: Path) -> None:
    folder, page = tmp_path / "agents", tmp_path / "agents.md"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for game in PROTOCOL.games[:2]:
        np.savez(folder / f"{game}.npz", **build_results(rng))
    stopped = {name: each[:-1] for name, each in build_results(rng).items()}
    stopped["random_returns"] = np.zeros((1, COUNT, PROTOCOL.seeds))
    np.savez(folder / f"{PROTOCOL.games[2]}.npz", **stopped)
    page.write_text("# Agents\n<!-- results -->\n<!-- end of results -->\nEnd\n")
    lines = minatar_report.write_report(folder, page, write=True)
    text = page.read_text()
    assert text.startswith("# Agents")
    assert text.endswith("End\n")
    assert all(line in text for line in lines)
    assert f"| {PROTOCOL.games[2]}, 750,000 steps |" in text
    assert "over 2 games" in text
    # Ten points more or less, normalised by the best mean: a gain and a loss beyond doubt.
    rows = [line.split(" | ") for line in lines if line.startswith("| ")]
    gains = {row[1]: row[3] for row in rows[1:13]}
    assert gains["MICo"].startswith("**+0.")
    assert gains["SimSR"].startswith("**-0.")
    assert not gains["on_policy"].startswith("**")
    assert (folder / "returns.png").stat().st_size > 10_000
    assert (folder / "metric.png").stat().st_size > 10_000


def test_results_must_exist(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"has no results: python .* run"):
        minatar_report.load_results(tmp_path)
