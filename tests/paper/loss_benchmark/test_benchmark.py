"""The loss benchmark end to end at toy size: a new loss, resumption, selection, bad input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from bisimetric.errors import InputError
from bisimetric.paper import loss_benchmark
from bisimetric.paper.loss_benchmark import benchmark, environments, storage, training
from bisimetric.paper.loss_benchmark.methods import METHODS, Method, NStepBatch, Readout
from bisimetric.paper.loss_benchmark.networks import Weights, embed, init_weights
from bisimetric.paper.loss_benchmark.protocol import (
    SETTINGS,
    Protocol,
    Run,
    Setting,
    list_final_runs,
)

TOY = Protocol(
    updates=2,
    batch_size=4,
    embedding_size=8,
    hidden_size=8,
    num_renderings=1,
    tuning_seeds=1,
    num_seeds=2,
)


def compute_value_loss(weights: Weights, target: Weights, batch: NStepBatch) -> Array:
    """The one function that a new loss takes: here TD(0) of the sum of the coordinates."""
    values = jnp.sum(embed(weights, batch.observations), axis=1)
    following = jnp.sum(embed(target, batch.next_observations), axis=1)
    following = jnp.where(batch.terminated[:, 0], 0.0, following)
    return jnp.mean((values - batch.rewards[:, 0] - 0.9 * following) ** 2)


def measure_values(x: Array, y: Array, reward_range: Array) -> Array:
    return jnp.abs(jnp.sum(x, axis=-1) - jnp.sum(y, axis=-1))


VALUES = Method(
    "values", compute_value_loss, (Readout("values", "V", "on_policy", measure_values),)
)


def measure(folder: Path, *args: Any, **options: Any) -> list[loss_benchmark.Row]:
    options = (
        dict[str, Any]({"methods": {"values": VALUES}, "protocol": TOY, "tune": False}) | options
    )
    return loss_benchmark.measure(folder, *args, **options)


def test_a_new_loss_is_one_function(tmp_path: Path) -> None:
    rows = measure(tmp_path, ["inventory"])
    assert {row.loss for row in rows} == {"values"}
    assert len(rows) == 2 * 3 * 2
    for row in rows:
        assert set(row.scores) == set(storage.SCORES)
        assert np.isfinite(list(row.scores.values())).all()
        # Without distractors the renderings of a state are equal.
        assert (row.scores["noise_ratio"] < 1e-6) == (row.noise == "none")
    table = list(loss_benchmark.format_table(rows))
    assert sum(line.startswith("values ") for line in table) == 2
    records = loss_benchmark.tabulate(rows)
    mean = np.mean([row.scores["own_error"] for row in rows if row.policy == "greedy"])
    assert records[0]["own_error"] == pytest.approx(mean)
    markdown = loss_benchmark.build_tables(rows)
    assert markdown["errors"][-1].startswith(f"| values | {mean:.2f} ± ")
    assert "held-out" not in markdown


def test_results_are_reused_and_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    first = measure(tmp_path, ["inventory"], report_progress=lines.append)
    assert len(lines) == 1
    both = measure(tmp_path, ["inventory", "queue"], report_progress=lines.append)
    assert len(lines) == 2
    assert len(both) == 2 * len(first)

    def fail(*args: Any) -> None:
        raise AssertionError("trained again")

    monkeypatch.setattr(training, "train", fail)
    again = measure(tmp_path, ["inventory", "queue"])
    assert [row[:8] for row in again] == [row[:8] for row in both]
    for row, other in zip(again, both, strict=True):
        found, expected = list(row.scores.values()), list(other.scores.values())
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-12)
    stored = json.loads((tmp_path / "protocol.json").read_text())
    assert stored["updates"] == 2


@pytest.mark.slow
def test_the_setting_with_the_least_error_is_selected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(benchmark, "TUNING", ("inventory",))
    rows = measure(tmp_path, ["queue"], tune=True)
    tuning = storage.read_rows(tmp_path / "tuning.csv")
    assert {row.mdp for row in tuning} == {"inventory"}
    assert {row.seed for row in tuning} == {1000}
    errors = {
        setting: np.mean([r.scores["own_scaled_error"] for r in tuning if r.setting == setting])
        for setting in SETTINGS
    }
    assert {row.setting for row in rows} == {min(errors, key=lambda each: errors[each])}
    # Divergence counts as 1, and so does not win.
    row = tuning[0]._replace(scores={"own_scaled_error": 0.99})
    diverged = row._replace(learning_rate=1.0, scores={"own_scaled_error": float("nan")})
    assert loss_benchmark.select_setting([diverged, row]) == row.setting


@pytest.mark.slow
def test_only_its_own_fields_change_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    environment = environments.build("inventory")
    setting = Setting(1e-3, 1.0)
    runs = [
        Run("uniform", "iid", setting, 0),
        Run("uniform", "iid", setting, 0),
        Run("uniform", "iid", setting, 1),
        Run("uniform", "slow", setting, 0),
        Run("greedy", "iid", setting, 0),
        Run("uniform", "iid", setting._replace(learning_rate=1e-2), 0),
    ]
    matrices = training.train(VALUES, environment, runs, TOY)["values"]
    np.testing.assert_array_equal(matrices[0], matrices[1])
    for other in matrices[2:]:
        assert not np.allclose(matrices[0], other)
    np.testing.assert_allclose(matrices, matrices.transpose(0, 2, 1), rtol=1e-5)
    # Nor do the other runs that are trained at once, or those that fill the last group.
    monkeypatch.setattr(training, "CHUNK", 4)
    grouped = training.train(VALUES, environment, runs, TOY)["values"]
    np.testing.assert_allclose(grouped, matrices, rtol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_every_loss_trains_the_encoder(name: str) -> None:
    method = METHODS[name]
    shapes = {"inventory": (48,), "minigrid": (6, 6, 8)}
    for mdp in shapes if name == "dbc" else ["inventory"]:
        environment = environments.build(mdp)
        runs = training._build_runs(
            method, environment, [Run("uniform", "slow", Setting(1e-3, 1.0), 0)]
        )
        run = jax.tree.map(lambda each: each[0], runs)
        tables = training._build_tables(environment)
        batch = training.sample_batch(jax.random.key(0), tables, run, TOY)
        sizes: dict[str, Any] = {"embedding_size": 8, "hidden_size": 8, "heads": method.heads}
        weights, target = (
            init_weights(jax.random.key(seed), shapes[mdp], environment.num_actions, **sizes)
            for seed in (0, 1)
        )
        gradient = jax.grad(method.loss)(weights, target, batch)
        for layers in gradient.values():
            for W, _ in layers:
                assert np.isfinite(W).all()
        assert bool(np.any(gradient["encoder"][0][0])) != method.is_control
        for readout in method.readouts:
            x = readout.represent(weights, batch.observations, run.reward_scale)
            d = np.asarray(readout.distance(x[:, None], x[None, :], run.reward_scale))
            assert d.shape == (4, 4)
            np.testing.assert_allclose(d, d.T, rtol=1e-5, atol=1e-6)
            assert environment.get_distance(readout.own, "uniform").shape[0] > 4


@pytest.mark.parametrize("name", ["dbc", "normalised-dbc"])
def test_latent_models_do_not_train_the_encoder(name: str) -> None:
    """Without a difference of rewards or embeddings, the loss of the pairs is 0."""
    weights = init_weights(
        jax.random.key(0), (5,), 2, embedding_size=4, hidden_size=8, heads=METHODS[name].heads
    )
    same = jnp.ones((3, 5))
    rewards, ends = jnp.ones((3, 1)), jnp.zeros((3, 1), bool)
    batch = NStepBatch(same, jnp.zeros(3, int), rewards, ends, same, same, jnp.asarray(1.0))
    gradient = jax.grad(METHODS[name].loss)(weights, weights, batch)
    assert np.any(gradient["successor"][0][0])
    assert not np.any(gradient["encoder"][0][0])


@pytest.mark.slow
def test_a_metric_loss_comes_close_to_its_fixed_point() -> None:
    environment = environments.build("rooms")
    protocol = Protocol(updates=800, num_renderings=1)
    runs = [Run("greedy", "none", Setting(1e-3, 0.1), seed) for seed in range(2)]
    matrices = training.train(METHODS["on-policy"], environment, runs, protocol)["on-policy"]
    rows = storage.build_rows(METHODS["on-policy"], environment, runs, {"on-policy": matrices})
    for row in rows:
        assert row.scores["own_rank_correlation"] > 0.95
        assert row.scores["own_error"] < 0.15
        assert row.scores["on_policy_error"] == pytest.approx(row.scores["own_error"], abs=1e-5)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"mdps": ["room"]}, "there is no MDP 'room'"),
        ({"losses": ["values", "dbc"]}, "there is no loss 'dbc'"),
        ({"num_seeds": 1}, "num_seeds is 1 and must be a whole number, at least 2"),
        ({"updates": 0}, "updates is 0 and must be a whole number, at least 1"),
    ],
)
def test_bad_input_is_named(tmp_path: Path, options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        measure(tmp_path, **options)


def test_results_of_another_protocol_are_not_mixed(tmp_path: Path) -> None:
    storage.match_protocol(tmp_path / "protocol.json", TOY.describe())
    with pytest.raises(InputError, match="its updates is 2 and here it is 3"):
        measure(tmp_path, ["inventory"], updates=3)
    (tmp_path / "protocol.json").write_text("{")
    with pytest.raises(InputError, match=r"protocol\.json holds no protocol"):
        measure(tmp_path, ["inventory"])


def test_results_of_another_setting_or_damaged_ones_are_named(tmp_path: Path) -> None:
    run = list_final_runs(TOY, SETTINGS[0])[0]
    row = storage.Row("values", "values", "queue", "greedy", "none", *run.setting, 0, {})
    storage.write_rows(tmp_path / "results.csv", [row])
    with pytest.raises(InputError, match="with another setting"):
        measure(tmp_path, ["queue"])
    (tmp_path / "results.csv").write_text("loss,readout\nmico,mico\n")
    with pytest.raises(InputError, match=r"results\.csv holds no scores"):
        measure(tmp_path, ["queue"])
