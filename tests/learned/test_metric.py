"""Pair Q-learning converges to the exact metrics of small MDPs, terminal states included."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from numpy.typing import NDArray

from bisimetric import MDP, Transitions, exact, learned, worlds
from bisimetric.learned import (
    FreeNetwork,
    MetricNetwork,
    PairQConfig,
    RunOptions,
    config,
    source_from_mdp,
)
from bisimetric.learned.losses import LearnedKind
from tests.learned_references import compile_quickly, walk  # noqa: F401 - a fixture

QUICK = PairQConfig(
    MetricNetwork((16,), num_groups=4, group_size=2),
    batch_size=32,
    learning_rate=0.01,
    warm_up=50,
    target_update_period=10,
)
"""With these a few states come within 1% of the exact metric in two thousand updates."""

ONE_RECORD = RunOptions(log_every=10_000)

FIVE = MDP.deterministic(
    [[1, 0], [2, 0], [3, 1], [4, 2], [4, 4]],
    [[0.0, 1.0], [0.0, -1.0], [0.5, 0.0], [2.0, 0.0], [0.0, 0.0]],
    discount=0.7,
    policy=[0, 0, 1, 0, 0],
)


def laws(table: NDArray[np.float32]) -> None:
    """Identity, symmetry and the triangle inequality, but for rounding."""
    assert (table.diagonal() == 0).all()
    np.testing.assert_array_equal(table, table.T)
    detour = (table[:, :, None].astype(np.float64) + table[None, :, :]).min(axis=1)
    assert (table <= detour + 8 * np.finfo(np.float32).eps * table.max()).all()


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "scale"), [("bisimulation", 1000.0), ("on_policy", 1.0)])
def test_training_reaches_the_exact_metric(kind: LearnedKind, scale: float) -> None:
    mdp = FIVE.replace(R=scale * FIVE.R)
    truth = getattr(exact, kind)(mdp)
    d = getattr(learned, kind)(
        mdp, updates=2_000, seed=1, config=QUICK, reference=truth, options=ONE_RECORD
    )
    assert d.history["error"][-1] < 0.01 * truth.values.max()
    assert d.history["correlation"][-1] > 0.995
    laws(d.values)
    quality = d.quality(source_from_mdp(kind, mdp, mdp.policy if kind == "on_policy" else None))
    assert quality.symmetry == quality.identity == 0
    assert quality.residual < 0.01 * truth.values.max()


@pytest.mark.parametrize("listed", [True, False])
def test_pessimism_is_learned_from_listed_states_and_from_batches(
    listed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config, "fits_in_batch", lambda source, batch: listed)
    mdp = worlds.load("pessimism", discount=0.6)
    truth = exact.bisimulation(mdp)
    d = learned.bisimulation(mdp, updates=1_500, config=QUICK, reference=truth, options=ONE_RECORD)
    assert d.history["error"][-1] < 0.01 * truth.values.max()
    laws(d.values)


@pytest.mark.slow
def test_a_free_network_comes_near() -> None:
    truth = exact.bisimulation(FIVE)
    free = dataclasses.replace(QUICK, network=FreeNetwork((32,)), learning_rate=0.001)
    d = learned.bisimulation(FIVE, updates=1_500, config=free, reference=truth, options=ONE_RECORD)
    assert d.history["error"][-1] < 0.05 * truth.values.max()
    np.testing.assert_array_equal(d.values, d.values.T)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "ends"), [("bisimulation", True), ("bisimulation", False), ("on_policy", True)]
)
def test_data_gives_the_exact_distance_including_the_terminal_state(
    kind: LearnedKind, ends: bool
) -> None:
    data = walk(ends)
    mdp = data.to_mdp(discount=0.7)
    if kind == "bisimulation":
        d = learned.bisimulation(data, discount=0.7, updates=2_500, config=QUICK)
        truth = exact.bisimulation(mdp).values
    else:
        few = dataclasses.replace(QUICK, batch_size=16)
        d = learned.on_policy(data, [1, 1, 1], discount=0.7, updates=2_500, config=few)
        truth = exact.on_policy(mdp, [1] * mdp.num_states).values
    atol = 0.02 * truth.max()
    np.testing.assert_allclose(d.values, truth[:3, :3], atol=atol)
    laws(d.values)
    if ends:
        assert d(None, None) == 0
        assert truth[3, :3].min() > 2 * atol
        for s in range(3):
            assert d(None, s) == pytest.approx(truth[3, s], abs=atol)
            assert d(s, None) == d(None, s)


def test_noise_makes_states_continuous() -> None:
    d = learned.bisimulation(
        FIVE.replace(features=np.arange(5.0)[:, None]),
        updates=40,
        config=QUICK,
        noise=0.1,
        noise_clip=0.3,
    )
    table = d.table(np.linspace(0, 4, 30)[:, None])
    laws(table)
    assert table.max() > 0


@pytest.mark.slow
@pytest.mark.parametrize("key", [0, 1])
def test_an_unobserved_action_is_ignored(key: int) -> None:
    data = walk(True)
    apart = Transitions(
        np.asarray(data.states),
        2 * data.actions,
        data.rewards,
        np.asarray(data.next_states),
        terminated=data.terminated,
        num_states=3,
    )
    truth = exact.bisimulation(data.to_mdp(discount=0.7)).values
    d = learned.bisimulation(apart, discount=0.7, updates=2_500, config=QUICK, seed=key)
    np.testing.assert_allclose(d.values, truth[:3, :3], atol=0.02 * truth.max())
