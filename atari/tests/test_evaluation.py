"""Accuracy of metrics on recorded games that they were not learned from."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from bisimetric.errors import InputError
from bisimetric.learned import LearnedDistance, MetricNetwork
from bisimetric.transitions import Transitions
from bisimetric_atari import agents
from bisimetric_atari.paper import evaluation, exact_returns, experiment, learning
from recorded_game import CYCLE, make_game
from tests.commands import Run, assert_input_error
from tests.learned_references import compile_quickly  # noqa: F401 - a fixture

SMALL = dataclasses.replace(
    learning.RECORDED_RETURNS,
    network=MetricNetwork((64, 64), num_groups=16, group_size=4, fourier_features=0),
    batch_size=32,
    warm_up=50,
    learning_rate=3e-3,
)


@pytest.fixture(scope="module")
def metric() -> LearnedDistance:
    return learning.learn(make_game(), config=SMALL, updates=800, discount=0.9)


def test_accuracy_is_computed_over_pairs_of_distinct_states() -> None:
    rng = np.random.default_rng(0)
    exact, found = rng.random((2, 6, 6))
    exact, found = exact + exact.T, found + found.T
    pairs = [(i, j) for i in range(6) for j in range(i)]
    x, y = (np.array([each[pair] for pair in pairs]) for each in (found, exact))
    accuracy = evaluation.compute_accuracy(found, exact)
    assert accuracy.correlation == pytest.approx(np.corrcoef(x, y)[0, 1])
    ranks = np.corrcoef(x.argsort().argsort(), y.argsort().argsort())[0, 1]
    assert accuracy.rank_correlation == pytest.approx(ranks)
    assert accuracy.relative_error == pytest.approx(np.abs(x - y).sum() / y.sum())
    assert accuracy.self_distance == np.diagonal(found).max()


def test_a_metric_is_compared_with_exact_distances(metric: LearnedDistance) -> None:
    data = make_game(400)
    found = evaluation.evaluate_metrics({"mine": metric}, data, num_states=100, seed=3)
    assert list(found) == ["mine", "features", "constant"]
    assert found["mine"].correlation > 0.99
    assert found["mine"].relative_error < 0.1
    assert found["mine"].self_distance == 0
    assert found["features"].correlation < 0.9
    assert np.isnan(found["constant"].correlation)
    # The constant is the median, by hand.
    rows, exact = learning.sample_reference(data, 0.9, num_samples=100, seed=3)
    assert exact is not None
    assert len(rows) == 100
    upper = exact[np.triu_indices(100, 1)]
    error = np.abs(upper - np.median(upper)).mean() / upper.mean()
    assert found["constant"].relative_error == pytest.approx(error)


def test_the_default_algorithm_is_for_the_rewards_of_the_data() -> None:
    data = make_game()
    assert learning.choose_algorithm(data) == "reward-sequence"
    # With 0, which the terminal state pays, that is one value more than can be predicted.
    many = dataclasses.replace(data, rewards=np.arange(len(data)) % 8 + np.float64(1))
    assert learning.choose_algorithm(many) == "recorded-returns"
    few = dataclasses.replace(data, rewards=np.arange(len(data)) % 7 + np.float64(1))
    assert learning.choose_algorithm(few) == "reward-sequence"
    sticky = dataclasses.replace(data, metadata={"repeat_action_probability": 0.25})
    assert learning.choose_algorithm(sticky) == "mico"


def test_what_cannot_be_compared_is_refused(metric: LearnedDistance) -> None:
    data = make_game()
    other = dataclasses.replace(metric, discount=0.8)
    with pytest.raises(InputError, match=r"discounts \[0.8, 0.9\]; compare metrics of one"):
        evaluation.evaluate_metrics({"a": metric, "b": other}, data)
    horizon = exact_returns.compute_horizon(0.9)
    assert horizon > CYCLE
    with pytest.raises(InputError, match=f"recorded for {horizon} steps"):
        evaluation.evaluate_metrics({"a": metric}, make_game(CYCLE))
    wide = Transitions(
        np.zeros((100, 9)),
        np.zeros(100, int),
        np.ones(100),
        np.zeros((100, 9)),
        np.arange(100) > 98,
    )
    with pytest.raises(InputError, match="a is for 6 features and the data have 9"):
        evaluation.evaluate_metrics({"a": metric}, wide)


@pytest.mark.parametrize("game", ["Pong", "SpaceInvaders", "Asterix"])
def test_both_included_metrics_are_pseudometrics_of_the_agent(game: str) -> None:
    agent = agents.pretrained(game)
    # Features as large as those of the games; they are outputs of a ReLU.
    scaling = experiment.load_metric(None, game, agent).scaling
    noise = np.random.default_rng(0).normal(size=(20, agent.num_features))
    x = np.maximum(scaling.shift + scaling.width * noise, 0)
    updates = {}
    for name in (None, "castro2020"):
        metric = experiment.load_metric(name, game, agent)
        values = np.asarray(metric.table(x))
        assert np.isfinite(values).all()
        assert values.max() > 0
        assert (values == values.T).all()
        assert metric.metadata["collected"]["steps"] == learning.STEPS
        updates[metric.metadata["algorithm"]] = metric.metadata["updates"]
        if name is None:
            assert (np.diagonal(values) == 0).all()
            triangle = values[:, :, None] - values[:, None, :] - values.T[None, :, :]
            assert triangle.max() < 1e-4 * values.max()
    # See docs/reports/atari.md.
    algorithm, expected = {
        "Pong": ("pair-q", 60_000),
        "SpaceInvaders": ("reward-sequence", 10_000),
        "Asterix": ("reward-sequence", 20_000),
    }[game]
    assert updates == {"castro2020": 150_000, algorithm: expected}


@pytest.mark.slow
def test_included_metrics_are_evaluated_on_other_games(run: Run) -> None:
    words = ("--steps", "4k", "--num-envs", "2", "--num-states", "200")
    done = run("atari", "evaluate", "Pong", *words)
    assert done.code == 0, done.err
    assert "data       4,000 steps" in done.out
    rows = {line.split()[0]: line.split()[1:] for line in done.out.splitlines() if line[:1] == " "}
    assert float(rows["included"][0]) > float(rows["castro2020"][0]) > float(rows["features"][0])
    assert float(rows["included"][2]) < 0.08
    assert rows["included"][3] == "0"
    assert_input_error(
        run("atari", "evaluate", "Pong", *words, "--seed", "0"),
        "included was learned from games of seed 0, which are not held out",
    )
    assert_input_error(
        run("atari", "evaluate", "Pong", *words, "--steps", "400"), "record longer ones"
    )
    assert_input_error(run("atari", "evaluate", "Pong", *words, "--metric", "x"), "x")
    assert not list(Path().glob("*.npz"))
