"""Learned distances with observations or a gap: the equations of their targets, and errors."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from bisimetric import MDP, InputError, Transitions, exact, learned
from bisimetric.learned import MetricNetwork, MicoNetwork, PairQConfig, PairTDConfig, castro2020
from tests.test_compared_costs import BY_ACTION, GROUND, PLAIN, STATES, X

OBSERVED = PLAIN.replace(observations=X, ground_distance="l1")
NETWORK = MetricNetwork((64,), num_groups=32, group_size=2)


@pytest.mark.parametrize("gap", [None, GROUND, BY_ACTION])
def test_the_targets_have_the_exact_distance_as_their_fixed_point(gap: Any) -> None:
    for kind, compute in (
        ("bisimulation", exact.bisimulation),
        ("on_policy", exact.on_policy),
        ("mico", exact.mico),
    ):
        if kind != "bisimulation" and gap is BY_ACTION:
            continue
        source = learned.source_from_mdp(kind, OBSERVED, gap=gap)  # type: ignore[arg-type]
        d = jnp.zeros((STATES, STATES))
        for _ in range(60):
            d = (source.compute_gaps() + 0.6 * source.gather_successors(d)).max(axis=0)
        expected = compute(OBSERVED, gap=gap)
        np.testing.assert_allclose(d, expected.values, atol=1e-4)


def test_the_unit_and_the_bound_of_pair_q_networks_contain_the_costs() -> None:
    source = learned.source_from_mdp("bisimulation", OBSERVED, gap=GROUND)
    network = PairQConfig(NETWORK).build_network(source, "bisimulation", 0.6)
    largest = (GROUND + np.abs(X[:, None] - X).sum(axis=2)).max()
    assert network.diameter_bound * network.unit == pytest.approx(largest / 0.4, rel=1e-5)


@pytest.mark.slow
def test_learned_distances() -> None:
    q = PairQConfig(NETWORK, batch_size=64, warm_up=100)
    td = PairTDConfig(MicoNetwork(NETWORK), batch_size=64, learning_rate=0.01, warm_up=100)
    for gap in (None, GROUND):
        for learn, compute, config in (
            (learned.bisimulation, exact.bisimulation, q),
            (learned.on_policy, exact.on_policy, q),
            (learned.mico, exact.mico, td),
        ):
            d = learn(OBSERVED, gap=gap, config=config, updates=3_000)
            expected = compute(OBSERVED, gap=gap)
            error = np.abs(d.to_distance().values - expected.values).max()
            assert error <= 0.05 * expected.values.max()
            assert d.metadata["ground_distance"] == "l1"
            assert ("gap" in d.metadata) == (gap is not None)


def test_defaults_estimate_a_model() -> None:
    assert learned.choose_config("bisimulation", PLAIN).name != "model-based"
    assert learned.choose_config("bisimulation", OBSERVED).name == "model-based"
    d = learned.bisimulation(PLAIN, gap=GROUND, updates=1)
    assert d.metadata["algorithm"] == "model-based"


def test_what_samples_transitions_raises() -> None:
    q = PairQConfig(NETWORK, batch_size=64)
    with pytest.raises(InputError, match="pairs of transitions do not compare; leave noise"):
        learned.bisimulation(OBSERVED, config=q, noise=0.1, updates=1)
    td = PairTDConfig(MicoNetwork(NETWORK), batch_size=64)
    with pytest.raises(InputError, match="sampled pairs of transitions do not compare"):
        learned.mico(OBSERVED, config=td, noise=0.1, updates=1)
    config = castro2020.Castro2020Config(batch_size=4)
    with pytest.raises(InputError, match="raise batch_size to the number of states"):
        castro2020.bisimulation(OBSERVED, config=config, updates=1)
    castro2020.bisimulation(OBSERVED, updates=1)
    d = learned.initialise("bisimulation", OBSERVED, config=q)
    source = learned.source_from_mdp("bisimulation", PLAIN)
    with pytest.raises(InputError, match="has ground distances, and transitions are compared"):
        d.quality(source)
    with pytest.raises(InputError, match="has ground distances, and transitions are compared"):
        d.loss(d.params, d.params, None)  # type: ignore[arg-type]
    labelled = learned.initialise("bisimulation", PLAIN.replace(labels=["x"] + [()] * 11))
    with pytest.raises(InputError, match="has labels, and transitions are compared"):
        labelled.quality(source)


def test_gaps_need_an_mdp() -> None:
    data = Transitions([[0.0], [1.0]], [0, 0], [1.0, 0.0], [[1.0], [0.0]], [False, False])
    for learn in (learned.bisimulation, learned.on_policy, learned.mico):
        with pytest.raises(InputError, match="the source is Transitions; pass an MDP"):
            learn(data, gap=GROUND, updates=1)
    with pytest.raises(InputError, match="the source is Transitions; pass an MDP"):
        learned.source_from_model("bisimulation", data, discount=0.5, gap=GROUND)


def test_choice_labels_raise_without_a_model() -> None:
    mdp = MDP.deterministic([[0, 1], [1, 0]], [[0, 1], [1, 0]], discount=0.5)
    shared = mdp.replace(choice_labels=["go", "go"])
    with pytest.raises(InputError, match="labels of states and choices are not supported"):
        learned.bisimulation(shared, config=PairQConfig(NETWORK), updates=1)
