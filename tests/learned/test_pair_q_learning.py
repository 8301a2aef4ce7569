"""The loss of pair Q-learning against loops in NumPy; samplers; units; learning rates."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from bisimetric import MDP, InputError, exact, learned, worlds
from bisimetric.learned import (
    FeatureScaling,
    FreeNetwork,
    MetricNetwork,
    PairQConfig,
    source_from_mdp,
)
from bisimetric.learned import config as config_module
from bisimetric.learned.losses import LearnedKind
from bisimetric.learned.networks.metric_networks import PairQEnsemble
from bisimetric.learned.pair_q_loss import (
    build_all_pairs_objective,
    build_batch_objective,
    build_lookup_objective,
    compute_target,
    evaluate_double_q,
)
from bisimetric.learned.sources import ANY_ACTION, Batch, StateSource, TransitionSource
from tests.learned_references import PLAIN, Table, compile_quickly, contains, record  # noqa: F401 - a fixture
from tests.property_testing import scaled

DISCOUNT = 0.8
METRIC = MetricNetwork((8,), num_groups=4, group_size=2)
FREE = FreeNetwork((8,))
FORMS = pytest.mark.parametrize("form", [METRIC, FREE], ids=["metric", "free"])
FIVE = MDP.deterministic(
    np.random.default_rng(3).integers(5, size=(5, 3)),
    np.random.default_rng(4).normal(size=(5, 3)),
    discount=DISCOUNT,
)


def wild(network: PairQEnsemble, key: int, features: int) -> Any:
    """Parameters of all copies, without a compiler."""
    rng = np.random.default_rng(key)
    shapes = jax.eval_shape(lambda k: network.init(k, features), jax.random.key(0))
    return jax.tree.map(lambda s: (0.5 * rng.normal(size=s.shape)).astype(np.float32), shapes)


def build_network(
    source: Any, kind: LearnedKind = "bisimulation", form: Any = METRIC, copies: int = 2
) -> Any:
    """The network for a source, with a cap low enough to be met."""
    made = PairQConfig(form, num_networks=copies).build_network(source, kind, DISCOUNT)
    return dataclasses.replace(made, diameter_bound=0.5)


_values = jax.jit(lambda network, *args: network.values(*args), static_argnums=0)


def psi_of(network: PairQEnsemble, parameters: Any, x: Any) -> Table:
    """What each copy says of each action, (copies, A, n, n)."""
    each = [np.asarray(_values(network.network, copy, x, x)) for copy in parameters]
    return np.array(each, np.float64)


def evaluate_by_loops(values: Table) -> Table:
    """One copy chooses the action, the one before it tells its value; the mean of all."""
    copies, _, n, m = values.shape
    found = np.zeros((n, m))
    for i in range(n):
        for j in range(m):
            for c in range(copies):
                found[i, j] += values[c - 1, int(np.argmax(values[c, :, i, j])), i, j] / copies
    return found


def loss_by_loops(
    network: PairQEnsemble, block: Batch, a: int, now: Any, before: Any
) -> tuple[float, float]:
    """The sum over all pairs of a block of one action and all copies; and how many were cut off."""
    x, _, reward, x_next = (np.asarray(column) for column in block)
    psi, ahead = psi_of(network, now, x), evaluate_by_loops(psi_of(network, before, x_next))
    total, cut = 0.0, 0
    for i in range(len(x)):
        for j in range(len(x)):
            gap = abs(float(reward[i]) - float(reward[j])) / network.unit
            T = min(gap + DISCOUNT * ahead[i, j], network.diameter_bound)
            cut += gap + DISCOUNT * ahead[i, j] > network.diameter_bound
            T = 0.0 if i == j else T
            total += sum((float(one[a, i, j]) - T) ** 2 for one in psi)
    return total, cut


def block_of(batch: Batch, a: int) -> Batch:
    return Batch(*(np.asarray(column)[a] for column in batch))


# The target and the choice.


@pytest.mark.parametrize("copies", [1, 2, 3])
def test_one_network_selects_and_another_evaluates(copies: int) -> None:
    values = np.random.default_rng(copies).normal(size=(copies, 4, 5, 6)).astype(np.float32)
    found = np.asarray(jax.jit(evaluate_double_q)(values))
    np.testing.assert_allclose(found, evaluate_by_loops(values), rtol=1e-5, atol=1e-6)
    if copies == 1:
        np.testing.assert_array_equal(found, values[0].max(axis=0))
    else:
        # Never more than what those who tell could have said.
        assert (found <= values.max(axis=1).mean(axis=0) + 1e-6).all()
        assert (found < values.max(axis=1).mean(axis=0) - 0.1).any()


def test_a_target_is_no_more_than_there_can_be_and_zero_for_one_and_the_same() -> None:
    gap, ahead = jnp.array([0.25, 0.25, 2.0, 0.0]), jnp.array([0.5, 4.0, 0.0, 0.0])
    found = compute_target(gap, ahead, jnp.zeros(4, bool), 0.5, 1.0)
    np.testing.assert_allclose(found, [0.5, 1.0, 1.0, 0.0])
    assert not np.asarray(compute_target(gap, ahead, jnp.ones(4, bool), 0.5, 1.0)).any()


# The loss of a batch.


@FORMS
@pytest.mark.parametrize("ends", [False, True])
def test_the_loss_of_a_batch_is_that_of_the_loops(form: Any, ends: bool) -> None:
    source = record(5, ends=ends)
    network = build_network(source, form=form)
    assert network.num_actions == 3
    learner = build_batch_objective(source, network, DISCOUNT, 13)
    dealer = source.build_stratified_sampler(3, 4)  # 13 // 3

    @jax.jit
    def both(now: Any, before: Any, key: Any) -> Any:
        frozen = learner.prepare(before, jnp.int32(7))
        return learner.loss(now, frozen, key), dealer.sample(key)

    cuts = 0.0
    for key in range(3):
        now, before = (wild(network, 2 * key + i, source.scaling.num_features) for i in (0, 1))
        found, batch = both(now, before, jax.random.key(key))
        sums = [loss_by_loops(network, block_of(batch, a), a, now, before) for a in range(3)]
        assert float(found) == pytest.approx(sum(total for total, _ in sums) / 48, rel=1e-4)
        cuts += sum(cut for _, cut in sums)
    assert cuts > 0


def test_all_pairs_of_a_batch_are_compared_where_actions_do_not_count() -> None:
    source = record(6, ends=True)
    network = build_network(source, "on_policy")
    assert network.num_actions == 1
    learner = build_batch_objective(source, network, DISCOUNT, 6)
    now, before = wild(network, 0, 3), wild(network, 1, 3)
    key = jax.random.key(2)
    found = float(jax.jit(learner.loss)(now, learner.prepare(before, jnp.int32(0)), key))
    batch = jax.jit(source.build_stratified_sampler(1, 6).sample)(key)
    assert len(set(np.asarray(batch.action)[0].tolist())) > 2
    total, _ = loss_by_loops(network, block_of(batch, 0), 0, now, before)
    assert found == pytest.approx(total / 36, rel=1e-4)


def test_an_action_that_nobody_took_has_no_weight() -> None:
    source = record(5)
    source = dataclasses.replace(source, action=jnp.where(source.action == 1, 2, source.action))
    network = build_network(source)
    assert network.num_actions == 3
    learner = build_batch_objective(source, network, DISCOUNT, 12)
    dealer = source.build_stratified_sampler(3, 4)
    assert dealer.available.tolist() == [True, False, True]
    now, before = wild(network, 0, 2), wild(network, 1, 2)
    key = jax.random.key(1)
    batch = jax.jit(dealer.sample)(key)
    total = sum(loss_by_loops(network, block_of(batch, a), a, now, before)[0] for a in (0, 2))
    value, slope = jax.jit(jax.value_and_grad(learner.loss))(now, before, key)
    assert float(value) == pytest.approx(total / 32, rel=1e-4)
    # Its own coordinates do not move.
    last = np.asarray(slope[0][-1]["weights"]).reshape(8, 3, 2, 4)
    assert not last[:, 1].any()
    assert last[:, 0].any()
    assert last[:, 2].any()


def test_targets_are_constants() -> None:
    source = record(5)
    network = build_network(source)
    learner = build_batch_objective(source, network, DISCOUNT, 12)
    parameters = wild(network, 0, 2)
    slope = jax.jit(jax.grad(learner.loss, argnums=1))(parameters, parameters, jax.random.key(0))
    assert not any(np.asarray(leaf).any() for leaf in jax.tree.leaves(slope))


# The loss of states that are listed.


def targets_by_loops(source: StateSource, network: PairQEnsemble, before: Any, steps: int) -> Table:
    """The best of all ways to take so many steps and ask the network there, pair by pair."""
    successor, reward = np.asarray(source.successor), np.asarray(source.reward, np.float64)
    states, actions = reward.shape
    told = evaluate_by_loops(psi_of(network, before, source.compute_features()))

    def value(s: int, t: int, a: int, left: int) -> float:
        if s == t:
            return 0.0
        one, two = int(successor[s, a]), int(successor[t, a])
        further = [value(one, two, b, left - 1) for b in range(actions)] if left > 1 else []
        ahead = max(further, default=told[one, two])
        gap = float(abs(reward[s, a] - reward[t, a])) / network.unit
        return min(gap + DISCOUNT * float(ahead), network.diameter_bound)

    return np.array(
        [
            [[value(s, t, a, steps) for t in range(states)] for s in range(states)]
            for a in range(actions)
        ]
    )


@FORMS
@pytest.mark.parametrize("ahead", [1, 3])
def test_the_loss_of_states_is_that_of_the_loops(form: Any, ahead: int) -> None:
    source = source_from_mdp("bisimulation", FIVE, points=np.eye(5), scaling=PLAIN)
    network = build_network(source, form=form)
    learner = build_all_pairs_objective(source, network, DISCOUNT, 12, ahead)

    @jax.jit
    def both(now: Any, before: Any, key: Any) -> Any:
        targets = learner.prepare(before, jnp.int32(0))
        return learner.loss(now, targets, key), targets, source.sample_state_actions(key, 12)

    now, before = wild(network, 3, 5), wild(network, 4, 5)
    psi = psi_of(network, now, np.eye(5))
    T = targets_by_loops(source, network, before, ahead)
    for key in range(3):
        found, targets, (state, action) = both(now, before, jax.random.key(key))
        np.testing.assert_allclose(targets, T, rtol=1e-4, atol=1e-5)
        total, pairs = 0.0, 0
        for s, a in zip(np.asarray(state), np.asarray(action), strict=True):
            for t, b in zip(np.asarray(state), np.asarray(action), strict=True):
                if a == b:
                    pairs += 1
                    total += sum((float(one[a, s, t]) - T[a, s, t]) ** 2 for one in psi)
        assert float(found) == pytest.approx(total / pairs, rel=1e-4)
    assert np.isclose(T, network.diameter_bound).any()
    assert (network.diameter_bound > T).any()


@pytest.mark.parametrize("ahead", [1, 3])
def test_the_loss_of_tables_is_that_of_the_loops(ahead: int) -> None:
    source = source_from_mdp("bisimulation", FIVE, points=np.eye(5), scaling=PLAIN)
    network = build_network(source)
    learner = build_lookup_objective(source, network, DISCOUNT, 12, ahead)
    now, before = wild(network, 3, 5), wild(network, 4, 5)
    T = targets_by_loops(source, network, before, ahead)
    targets = jax.jit(learner.prepare)(before, jnp.int32(0))
    np.testing.assert_allclose(targets, T, rtol=1e-4, atol=1e-5)
    errors = ((psi_of(network, now, np.eye(5)) - T) ** 2).sum(axis=0)
    loss = jax.jit(learner.loss)
    for key in range(3):
        state = np.asarray(jax.random.randint(jax.random.key(key), (3, 4), 0, 5))
        expected = np.mean([errors[a, s, t] for a in range(3) for s in state[a] for t in state[a]])
        assert float(loss(now, targets, jax.random.key(key))) == pytest.approx(expected, rel=1e-4)


def test_the_further_targets_look_the_less_they_ask_the_network() -> None:
    """Whatever it says, d~ is what remains; T^n is a contraction by discount^n."""
    source = source_from_mdp("bisimulation", FIVE, points=np.eye(5), scaling=PLAIN)
    network = PairQConfig(METRIC).build_network(source, "bisimulation", DISCOUNT)
    truth = exact.bisimulation(FIVE).values
    before = wild(network, 4, 5)
    off = []
    for steps in (1, 5, 60):
        targets = build_lookup_objective(source, network, DISCOUNT, 12, steps).prepare(
            before, jnp.int32(0)
        )
        found = network.unit * np.asarray(targets).max(axis=0)
        off.append(float(np.abs(found - truth).max()))
    assert off[1] < off[0] * DISCOUNT**3
    assert off[2] < 1e-3


@pytest.mark.parametrize("kind", ["bisimulation", "on_policy"])
def test_both_ways_have_the_same_mean(kind: LearnedKind) -> None:
    """A share of 1 / b of the pairs of a block are of one and the same; the others are alike."""
    policy = None if kind == "bisimulation" else [0, 1, 2, 0, 1]
    source = source_from_mdp(kind, FIVE, policy, points=np.eye(5), scaling=PLAIN)
    network = build_network(source, kind)
    actions, size = network.num_actions, 24
    listed = build_all_pairs_objective(source, network, DISCOUNT, size)
    drawn = build_batch_objective(source, network, DISCOUNT, size)
    now, before = wild(network, 5, 5), wild(network, 6, 5)

    @jax.jit
    def means(keys: Any) -> Any:
        one, other = listed.prepare(before, jnp.int32(0)), drawn.prepare(before, jnp.int32(0))
        by_states = jax.vmap(lambda key: listed.loss(now, one, key))(keys)
        by_batches = jax.vmap(lambda key: drawn.loss(now, other, key))(keys)
        psi = [
            network.network.values(copy, source.compute_features(), source.compute_features())
            for copy in now
        ]
        return by_states, by_batches, sum(jnp.mean((each - one) ** 2) for each in psi)

    by_states, by_batches, mean = means(jax.random.split(jax.random.key(0), 400))
    share = actions / size
    expected = float(mean) * (1 - share)
    assert float(by_batches.mean()) == pytest.approx(expected, rel=0.02)
    # The blocks of states are not of one size, so that a few more pairs are of different states.
    assert float(by_states.mean()) == pytest.approx(expected, rel=0.02)
    if actions == 1:
        # The same states are drawn by other numbers, but each batch has all its pairs.
        assert float(by_states.std()) == pytest.approx(float(by_batches.std()), rel=0.2)


# Stratified samplers.


@pytest.mark.parametrize("ends", [False, True])
def test_the_stratified_sampler_takes_as_many_of_each_action(ends: bool) -> None:
    source = record(7, steps=30, ends=ends)
    dealt = jax.jit(source.build_stratified_sampler(3, 6).sample)
    known = {
        (int(a), *np.concatenate([x, [r], n]).tolist())
        for x, a, r, n in zip(source.x, source.action, source.reward, source.x_next, strict=True)
    }
    seen = set()
    for key in range(60):
        x, action, reward, x_next = (np.asarray(each) for each in dealt(jax.random.key(key)))
        assert x.shape == x_next.shape == (3, 6, 2 + ends)
        assert action.shape == reward.shape == (3, 6)
        last = 5 if ends else 6
        for a in range(3):
            assert (action[a, :last] == a).all()
            for i in range(last):
                seen.add((a, *np.concatenate([x[a, i], [reward[a, i]], x_next[a, i]]).tolist()))
            if ends:
                assert action[a, -1] == ANY_ACTION
                assert reward[a, -1] == 0
                np.testing.assert_array_equal(x[a, -1:], source.scaling.terminal)
                np.testing.assert_array_equal(x_next[a, -1:], source.scaling.terminal)
    assert seen == known  # nothing else, and each of them once at least


def test_with_one_action_all_steps_are_of_it() -> None:
    source = record(7, steps=30)
    batch = jax.jit(source.build_stratified_sampler(1, 200).sample)(jax.random.key(0))
    assert batch.x.shape == (1, 200, 2)
    assert set(np.asarray(batch.action)[0].tolist()) == {0, 1, 2}
    assert len(set(np.asarray(batch.reward)[0].tolist())) > 25
    assert source.build_stratified_sampler(1, 200).available.tolist() == [True]


def test_states_are_sampled_uniformly_with_their_noise() -> None:
    points = np.arange(10.0).reshape(5, 2)
    source = source_from_mdp(
        "bisimulation", FIVE, points=points, scaling=PLAIN, noise=0.2, noise_clip=0.3
    )
    dealer = source.build_stratified_sampler(3, 1000)
    assert dealer.available.tolist() == [True] * 3
    x, action, reward, x_next = (
        np.asarray(each) for each in jax.jit(dealer.sample)(jax.random.key(0))
    )
    assert x.shape == (3, 1000, 2)
    assert (action == np.arange(3)[:, None]).all()
    state = np.rint(x[..., 0] / 2).astype(int)
    # 1,000 / 5 = 200 each, with a deviation of 13.
    for a in range(3):
        assert np.abs(np.bincount(state[a], minlength=5) - 200).max() < 65
    np.testing.assert_allclose(reward, FIVE.R[state, action], rtol=1e-6)
    after = points[FIVE.next_state[state, action]]
    np.testing.assert_allclose(x - points[state], x_next - after, atol=1e-5)
    assert np.abs(x - points[state]).max() == pytest.approx(0.3, abs=1e-5)


def test_pairs_of_states_are_listed_where_that_is_cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a batch, then in a table as long as it costs no more than the targets of batches."""
    source = source_from_mdp("bisimulation", FIVE, points=np.eye(5), scaling=PLAIN)
    noisy = dataclasses.replace(source, noise=0.1, noise_clip=0.3)
    network = build_network(source)
    before = wild(network, 6, 5)

    def frozen(source: StateSource, **how: Any) -> Any:
        learner = PairQConfig(METRIC, **how).build_objective(
            source, network, "bisimulation", DISCOUNT
        )
        found = learner.prepare(before, jnp.int32(0))
        return np.asarray(found) if isinstance(found, jax.Array) else None

    for batch in (15, 14):
        near, far = frozen(source, batch_size=batch, lookahead=1), frozen(source, batch_size=batch)
        assert near.shape == far.shape == (3, 5, 5)
        assert not np.allclose(near, far)
        np.testing.assert_array_equal(far, frozen(source, batch_size=batch, lookahead=10))
    # 25 pairs, and 3 * 2^2 * period of batches.
    assert frozen(source, batch_size=6, target_update_period=3) is not None
    assert frozen(source, batch_size=6, target_update_period=2) is None
    assert frozen(noisy, batch_size=15) is None
    with monkeypatch.context() as patch:
        patch.setattr(config_module, "MAX_TABLE_STATES", 4)
        assert frozen(source, batch_size=6, target_update_period=3) is None


# Fourier features.


def test_the_highest_frequency_resolves_neighbouring_states() -> None:
    points = np.array([[0.0, 0.0], [0.5, 0.0], [0.5, 0.5], [9.0, 9.0], [9.0, 8.5]])
    source = source_from_mdp("bisimulation", FIVE, points=points, scaling=PLAIN)
    found = PairQConfig(METRIC).build_network(source, "bisimulation", DISCOUNT).network
    assert found == dataclasses.replace(
        METRIC, fourier_features="random", highest_frequency=2 * np.pi
    )
    noisy = dataclasses.replace(source, noise=0.1, noise_clip=0.3)
    alike = dataclasses.replace(source, points=jnp.zeros((5, 2)))
    wide = source_from_mdp("bisimulation", FIVE, points=np.eye(5, 9), scaling=PLAIN)
    far = source_from_mdp("bisimulation", FIVE, points=2 * points, scaling=PLAIN)
    told = dataclasses.replace(METRIC, fourier_features=2)
    for settings, other in (
        (PairQConfig(METRIC), noisy),
        (PairQConfig(METRIC), alike),
        (PairQConfig(METRIC), wide),
        (PairQConfig(METRIC), far),
        (PairQConfig(METRIC), record(3)),
        (PairQConfig(told), source),
        (PairQConfig(FREE), source),
    ):
        assert settings.build_network(other, "bisimulation", DISCOUNT).network == settings.network


# Units.


def double_loop(rewards: Any) -> float:
    return float(np.mean([abs(r - q) for r in rewards for q in rewards]))


@hypothesis_settings(deadline=None, max_examples=scaled(50))
@given(st.lists(st.floats(-100, 100), min_size=1, max_size=9), st.sampled_from([0.0, 0.3, 1.0]))
def test_the_mean_gap_is_that_of_the_double_loop(rewards: list[float], ended: float) -> None:
    """Each of two copies is terminal, with reward 0, with a probability of its own."""
    from bisimetric.learned.config import compute_mean_gap

    share = (1 - ended) / len(rewards)
    paid = [(share, reward) for reward in rewards] + [(ended, 0.0)]
    expected = sum(p * q * abs(r - s) for p, r in paid for q, s in paid)
    assert compute_mean_gap(np.array(rewards), ended) == pytest.approx(expected, abs=1e-9)


def test_the_unit_of_an_mdp_uses_the_reward_gaps_per_action() -> None:
    source = source_from_mdp("bisimulation", FIVE)
    found = PairQConfig().build_network(source, "bisimulation", DISCOUNT)
    gap = np.mean([double_loop(column) for column in FIVE.R.T])
    assert found.unit == pytest.approx(4 * gap / 0.2, rel=1e-5)
    assert found.diameter_bound * found.unit == pytest.approx(
        np.ptp(FIVE.R, axis=0).max() / 0.2, rel=1e-5
    )
    assert (found.num_actions, found.num_networks, found.network) == (3, 2, MetricNetwork())
    chain = source_from_mdp("on_policy", FIVE, [0, 1, 2, 0, 1])
    other = PairQConfig(num_networks=3).build_network(chain, "on_policy", DISCOUNT)
    paid = FIVE.R[np.arange(5), [0, 1, 2, 0, 1]]
    assert other.unit == pytest.approx(4 * double_loop(paid) / 0.2, rel=1e-5)
    assert other.diameter_bound * other.unit == pytest.approx(np.ptp(paid) / 0.2, rel=1e-5)
    assert (other.num_actions, other.num_networks) == (1, 3)


@pytest.mark.parametrize("ends", [False, True])
@pytest.mark.parametrize("kind", ["bisimulation", "on_policy"])
def test_the_unit_of_data_counts_what_comes_after_the_end(kind: LearnedKind, ends: bool) -> None:
    scale = FeatureScaling(np.zeros(1), np.ones(1), ends)
    x = scale(np.arange(5.0)[:, None])
    x_next = x.copy()
    if ends:
        x_next[1] = scale.terminal[0]
    # Action 1 is not there; all rewards are above 0, the end's is 0.
    action, reward = [0, 0, 2, 2, 2], [3.0, 5.0, 4.0, 4.0, 9.0]
    source = TransitionSource(
        jnp.asarray(x), jnp.asarray(action), jnp.asarray(reward), jnp.asarray(x_next), scale
    )
    found = PairQConfig().build_network(source, kind, DISCOUNT)
    # A fifth of the steps end an episode: after t of them 0.8^t are left, by discount^t.
    alive = sum(0.2 * (DISCOUNT * 0.8) ** t for t in range(200)) if ends else 1.0
    blocks = [[3.0, 5.0], [4.0, 4.0, 9.0]] if kind == "bisimulation" else [reward]
    gap = np.mean(
        [
            alive**2 * double_loop(block) + 2 * alive * (1 - alive) * np.mean(block)
            for block in blocks
        ]
    )
    assert found.unit == pytest.approx(4 * gap / 0.2, rel=1e-5)
    span = max(max(block) - (0.0 if ends else min(block)) for block in blocks)
    assert found.diameter_bound * found.unit == pytest.approx(span / 0.2, rel=1e-5)
    assert found.num_actions == (3 if kind == "bisimulation" else 1)


def test_where_all_pays_the_same_there_still_is_a_unit() -> None:
    source = source_from_mdp("bisimulation", FIVE.replace(R=np.ones((5, 3))))
    found = PairQConfig().build_network(source, "bisimulation", DISCOUNT)
    assert found.unit == pytest.approx(1 / 0.2)
    assert found.diameter_bound == 0


# Learning rates.


def test_the_learning_rate_has_warm_up_and_cosine_decay() -> None:
    config = PairQConfig(learning_rate=0.5, warm_up=9)
    steps = np.arange(110)
    found = np.array([float(config.learning_rate_at(jnp.int32(i), jnp.int32(109))) for i in steps])
    expected = np.where(
        steps < 9, 0.5 * (steps + 1) / 10, 0.25 * (1 + np.cos(np.pi * (steps - 9) / 100))
    )
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert found[9] == pytest.approx(0.5)
    assert found[109] == pytest.approx(0, abs=1e-7)
    assert (np.diff(found[:10]) > 0).all()
    assert (np.diff(found[9:]) < 0).all()


def test_without_decay_the_rate_stays() -> None:
    config = PairQConfig(learning_rate=0.5, warm_up=4, decay=False)
    assert not config.decay
    assert PairQConfig().decay
    found = [float(config.learning_rate_at(jnp.int32(i), jnp.int32(20))) for i in range(21)]
    np.testing.assert_allclose(found, [0.1, 0.2, 0.3, 0.4, *[0.5] * 17], rtol=1e-6)
    at_once = PairQConfig(learning_rate=0.5, warm_up=0)
    assert float(at_once.learning_rate_at(jnp.int32(0), jnp.int32(20))) == 0.5
    assert float(at_once.learning_rate_at(jnp.int32(10), jnp.int32(20))) == pytest.approx(0.25)


def test_a_run_settles_when_a_hundredth_of_the_horizon_is_missing() -> None:
    config = PairQConfig(warm_up=100, target_update_period=10)
    for discount in (0.5, 0.9, 0.99):
        updates = (config.count_settling_updates(discount) - 100) // 10
        assert discount**updates <= 0.01 < discount ** (updates - 1)
        further = (config.count_settling_updates(discount, 10) - 100) // 10
        assert discount ** (10 * further) <= 0.01
        assert further == 1 or discount ** (10 * (further - 1)) > 0.01
    assert config.count_settling_updates(0.0) == 110


def test_only_enumerable_states_have_a_lookahead() -> None:
    mdp = worlds.load("mirrored-rooms", discount=0.9)
    config = PairQConfig()
    for noise, reach in ((0.0, 10), (0.1, 1)):
        source = source_from_mdp("bisimulation", mdp, noise=noise)
        assert (
            config.effective_lookahead(source, config.build_network(source, "bisimulation", 0.9))
            == reach
        )


# Validation.


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"network": learned.castro2020.PairNetwork((8,))},
            "network is PairNetwork(hidden=(8,)",
        ),
        ({"network": (8,)}, "network is (8,) and must be a MetricNetwork or a FreeNetwork"),
        ({"batch_size": 1}, "batch_size is 1 and must be a whole number, at least 2"),
        ({"batch_size": -4}, "batch_size is -4 and must be a whole number, at least 2"),
        ({"warm_up": -1}, "warm_up is -1 and must be a whole number, at least 0"),
        ({"warm_up": 0.5}, "warm_up is 0.5 and must be a whole number, at least 0"),
        ({"target_update_period": 0}, "target_update_period is 0 and must be"),
        ({"num_networks": 0}, "num_networks is 0 and must be a whole number, at least 1"),
        ({"learning_rate": -1}, "learning_rate is -1 and must be a number, above 0"),
        ({"epsilon": 0.0}, "epsilon is 0.0 and must be a number, above 0"),
    ],
)
def test_pair_q_config_validates_its_fields(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=contains(f"PairQConfig: {message}")):
        PairQConfig(**changes)


def test_mico_needs_a_network_with_self_distances() -> None:
    message = contains("learned.mico: config is a PairQConfig", "PairTDConfig")
    wrong: Any = PairQConfig(METRIC)
    with pytest.raises(InputError, match=message):
        learned.mico(FIVE, [0] * 5, updates=2, config=wrong)
    source: StateSource = source_from_mdp("mico", FIVE, [0] * 5)
    with pytest.raises(InputError, match=message):
        learned.fit("mico", source, discount=0.5, updates=2)
