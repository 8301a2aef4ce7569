"""Model-based learning: the model of stochastic data, its distances, and the network."""

from __future__ import annotations

import dataclasses
import warnings
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray

from bisimetric import MDP, InputError, Transitions, exact, learned, worlds
from bisimetric.errors import StochasticDataWarning
from bisimetric.learned import LearnedDistance, MetricNetwork, ModelBasedConfig, PairQConfig
from bisimetric.learned.losses import LearnedKind
from bisimetric.learned.transition_model import ModelSource, _find_nearest
from tests.learned_references import compile_quickly  # noqa: F401 - a fixture

DISCOUNT = 0.8
SMALL = ModelBasedConfig(
    MetricNetwork((32,), num_groups=32, group_size=1), learning_rate=1e-2, warm_up=50
)
KINDS: list[LearnedKind] = ["bisimulation", "on_policy"]


def build_random(seed: int = 0, states: int = 6) -> MDP:
    return worlds.load(
        "random", states=states, actions=2, successors=3, seed=seed, discount=DISCOUNT
    )


def sample(mdp: MDP, steps: int, seed: int = 0) -> tuple[NDArray[np.int64], ...]:
    """Return states, actions and successors from uniform states with uniform actions."""
    rng = np.random.default_rng(seed)
    states, actions = (rng.integers(size, size=steps) for size in mdp.R.shape)
    rows = mdp.normalised_probabilities.toarray()[states * mdp.num_actions + actions]
    successors = (rng.random((steps, 1)) > rows.cumsum(axis=1)).sum(axis=1)
    return states, actions, np.minimum(successors, mdp.num_states - 1)


def record(mdp: MDP, steps: int, noise: float = 0.0, ids: bool = False) -> Transitions:
    """Return transitions; observations are one-hot vectors with Gaussian noise, or ids."""
    states, actions, successors = sample(mdp, steps)
    rng = np.random.default_rng(1)
    points = np.eye(mdp.num_states)
    x, x_next = (
        points[each] + noise * rng.normal(size=(steps, 1)) for each in (states, successors)
    )
    if ids:
        x, x_next = states, successors  # type: ignore[assignment]
    return Transitions(x, actions, mdp.R[states, actions], x_next, np.zeros(steps, bool))


def compute_exact(kind: LearnedKind, mdp: MDP) -> NDArray[np.float64]:
    if kind == "bisimulation":
        return np.asarray(exact.bisimulation(mdp).values)
    uniform = np.full(mdp.R.shape, 1 / mdp.num_actions)
    return np.asarray(exact.on_policy(mdp, uniform).values)


def correlate(x: Any, y: Any) -> float:
    return float(np.corrcoef(np.ravel(x), np.ravel(y))[0, 1])


@pytest.mark.parametrize("kind", KINDS)
def test_a_stochastic_mdp_is_its_own_model(kind: LearnedKind) -> None:
    mdp = build_random()
    policy = None if kind == "bisimulation" else np.full(mdp.R.shape, 0.5)
    source = learned.source_from_model(kind, mdp, policy, discount=DISCOUNT)
    reference = compute_exact(kind, mdp)
    error = dict(source.summary)["error"]
    assert np.abs(np.asarray(source.values) - reference).max() <= error + 1e-5
    options: dict[str, Any] = {} if policy is None else {"policy": policy}
    assert learned.choose_config(kind, mdp, **options).name == "model-based"
    d = getattr(learned, kind)(mdp, **options, updates=800, config=SMALL)
    assert np.abs(d.values - reference).max() < 0.05 * reference.max()
    assert d.metadata["model"]["estimated_from"] == "the MDP"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ids", [False, True])
def test_distances_from_repeated_states_converge_to_the_exact_ones(
    kind: LearnedKind, ids: bool
) -> None:
    mdp = build_random(1)
    reference = compute_exact(kind, mdp)
    errors = []
    for steps in (400, 20_000):
        source = learned.source_from_model(kind, record(mdp, steps, ids=ids), discount=DISCOUNT)
        order = np.asarray(source.features).argmax(axis=1).argsort()
        values = np.asarray(source.values)[order][:, order]
        errors.append(np.abs(values - reference).max() / reference.max())
    assert errors[1] < 0.06
    assert errors[1] < errors[0] / 2


def test_the_model_of_repeated_states_is_the_empirical_mdp() -> None:
    mdp = build_random(2)
    data = record(mdp, 3_000, ids=True)
    source = learned.source_from_model("bisimulation", data, discount=DISCOUNT)
    order = np.asarray(source.features).argmax(axis=1).argsort()
    expected = exact.bisimulation(data.to_mdp(discount=DISCOUNT)).values
    found = np.asarray(source.values)[order][:, order]
    assert np.abs(found - expected).max() <= dict(source.summary)["error"] + 1e-5


@pytest.mark.parametrize("kind", KINDS)
def test_stochastic_data_are_learned_by_default_without_a_warning(kind: LearnedKind) -> None:
    mdp = build_random(3)
    data = record(mdp, 8_000, ids=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error", StochasticDataWarning)
        d = getattr(learned, kind)(data, discount=DISCOUNT, updates=300)
    assert d.metadata["algorithm"] == "model-based"
    assert correlate(d.values, compute_exact(kind, mdp)) > 0.98


@pytest.mark.parametrize("kind", KINDS)
def test_pairs_of_sampled_transitions_are_biased_where_the_model_is_not(kind: LearnedKind) -> None:
    mdp = build_random(4)
    data, reference = record(mdp, 8_000), compute_exact(kind, mdp)
    pairs = PairQConfig(MetricNetwork((32,), num_groups=16, group_size=1), batch_size=64)
    options = {"discount": DISCOUNT, "updates": 800}
    with pytest.warns(StochasticDataWarning, match="ModelBasedConfig"):
        biased = getattr(learned, kind)(data, config=pairs, **options)
    d = getattr(learned, kind)(data, config=SMALL, **options)
    points = np.eye(mdp.num_states)
    errors = [np.abs(each.table(points) - reference).mean() for each in (biased, d)]
    assert errors[1] < errors[0] / 4


@pytest.mark.parametrize("kind", KINDS)
def test_observations_that_never_repeat_have_the_outcomes_of_neighbours(kind: LearnedKind) -> None:
    mdp = build_random(5)
    data, reference = record(mdp, 6_000, noise=0.05), compute_exact(kind, mdp)
    source = learned.source_from_model(kind, data, discount=DISCOUNT, num_representatives=60)
    assert not source.enumerable
    assert dict(source.summary)["estimated_from"] == "nearest neighbours"
    observations = np.asarray(source.features) * source.scaling.width + source.scaling.shift
    state = observations.argmax(axis=1)
    expected = reference[np.ix_(state, state)]
    assert correlate(source.values, expected) > 0.95
    config = dataclasses.replace(SMALL, num_representatives=60)
    d = getattr(learned, kind)(data, discount=DISCOUNT, updates=500, config=config)
    assert correlate(d.table(np.eye(mdp.num_states)), reference) > 0.9


def test_few_visits_of_random_outcomes_are_warned_of() -> None:
    data = record(build_random(6), 150)
    with pytest.warns(StochasticDataWarning, match="recorded at most"):
        learned.bisimulation(data, discount=DISCOUNT, updates=20, config=SMALL)


def test_the_terminal_state_is_absorbing_with_reward_0() -> None:
    # From state 0 an episode continues or terminates with equal probability.
    x = [[0.0]] * 400
    terminated = np.arange(400) % 2 == 0
    data = Transitions(x, [0] * 400, [1.0] * 400, x, terminated)
    source = learned.source_from_model("bisimulation", data, discount=0.5)
    terminal = int(np.asarray(source.features)[:, -1].argmax())
    # d = 1 + 0.5 * 0.5 * d.
    assert source.values[terminal, 1 - terminal] == pytest.approx(4 / 3, abs=1e-3)


def test_an_untried_action_has_the_outcomes_of_the_nearest_state() -> None:
    mdp = worlds.load("mirrored-rooms", discount=0.9)
    points = np.asarray(mdp.positions, np.float64)
    states, actions = (each.ravel() for each in np.indices(mdp.R.shape))
    keep = np.arange(len(states)) != 5
    states, actions = np.tile(states[keep], 2), np.tile(actions[keep], 2)
    data = Transitions(
        points[states],
        actions,
        mdp.R[states, actions],
        points[mdp.next_state[states, actions]],
        np.zeros(len(states), bool),
    )
    source = learned.source_from_model("bisimulation", data, discount=0.9)
    assert dict(source.summary)["untried"] == 1
    reference = exact.bisimulation(mdp).values
    assert np.asarray(source.values).max() == pytest.approx(reference.max(), rel=0.05)
    with pytest.warns(StochasticDataWarning, match="1 state-action pairs were never tried"):
        learned.bisimulation(data, discount=0.9, updates=20, config=SMALL)
    ids = Transitions(
        states, actions, data.rewards, mdp.next_state[states, actions], data.terminated
    )
    with pytest.raises(InputError, match="lacks actions in 1 of 31 states"):
        learned.source_from_model("bisimulation", ids, discount=0.9)


def test_deterministic_data_give_the_exact_distances() -> None:
    mdp = worlds.load("mirrored-rooms", discount=0.9)
    data = record(mdp, 4_000, ids=True)
    source = learned.source_from_model("bisimulation", data, discount=0.9)
    order = np.asarray(source.features).argmax(axis=1).argsort()
    reference = exact.bisimulation(mdp).values
    found = np.asarray(source.values)[order][:, order]
    np.testing.assert_allclose(found, reference, atol=1e-3 * reference.max())
    assert not dict(source.summary)["stochastic"]
    assert learned.choose_config("bisimulation", data).name == "model-based"
    assert learned.choose_config("bisimulation", data[:60]).name == "pair-q"
    assert learned.choose_config("on_policy", data[:60], policy=[0] * 31).name == "pair-q"


def test_states_that_lack_actions_are_compared_as_in_exact() -> None:
    mdp = MDP.deterministic(
        [[1, 0], [0, 1]],
        [[1.0, 0.0], [0.0, 0.0]],
        discount=0.5,
        available=np.array([[True, True], [True, False]]),
    )
    d = learned.bisimulation(mdp, updates=300, config=SMALL)
    assert d(0, 1) == pytest.approx(exact.bisimulation(mdp)(0, 1), rel=0.05)


def test_labels_are_part_of_the_distances_of_a_model() -> None:
    mdp = build_random(10).replace(labels=["goal"] + [()] * 5)
    assert learned.choose_config("bisimulation", mdp).name == "model-based"
    d = learned.bisimulation(mdp, updates=800, config=SMALL)
    reference = exact.bisimulation(mdp).values
    assert reference[0, 1:].min() == pytest.approx(mdp.diameter_bound)
    assert np.abs(d.values - reference).max() < 0.05 * reference.max()


def test_a_model_based_distance_is_saved_and_loaded(tmp_path: Path) -> None:
    mdp = build_random(7)
    d = learned.bisimulation(mdp, updates=30, config=SMALL)
    d.save(tmp_path / "d.safetensors")
    loaded = LearnedDistance.load(tmp_path / "d.safetensors", mdp)
    np.testing.assert_array_equal(loaded.values, d.values)
    assert loaded.metadata["model"] == d.metadata["model"]
    assert np.isfinite(d.quality(record(mdp, 300)).residual)


def test_a_run_resumes(tmp_path: Path) -> None:
    mdp, path = build_random(8), tmp_path / "run.safetensors"
    config = dataclasses.replace(SMALL, decay=False)
    half = learned.RunOptions(checkpoint=path)
    learned.bisimulation(mdp, updates=20, config=config, options=half)
    resumed = learned.bisimulation(
        mdp, updates=40, config=config, options=learned.RunOptions(resume=path)
    )
    straight = learned.bisimulation(mdp, updates=40, config=config)
    np.testing.assert_allclose(resumed.values, straight.values, rtol=1e-5)


def test_the_loss_of_a_batch_and_other_sources_are_refused() -> None:
    mdp = build_random(9)
    d = learned.initialise("bisimulation", mdp)
    batch = learned.TransitionBatch.from_transitions(record(mdp, 10), range(4))
    with pytest.raises(InputError, match="whose loss is not a function of one batch"):
        d.loss(d.params, d.params, batch)
    deterministic = worlds.load("mirrored-rooms")
    source = learned.source_from_mdp("bisimulation", deterministic)
    with pytest.raises(InputError, match="no transition model"):
        learned.bisimulation(source, discount=0.9, updates=5, config=SMALL)
    with pytest.raises(InputError, match="use source_from_model"):
        learned.fit("bisimulation", source, discount=0.9, updates=5, config=SMALL)
    with pytest.raises(InputError, match="noise"):
        learned.bisimulation(deterministic, noise=0.1, updates=5, config=SMALL)
    with pytest.raises(InputError, match="d~ and d\\^pi"):
        learned.mico(deterministic, [0] * 31, updates=5, config=SMALL)
    with pytest.raises(InputError, match="must be a MetricNetwork"):
        ModelBasedConfig(network="wide")  # type: ignore[arg-type]


def test_nearest_points_are_found_with_and_without_a_tree() -> None:
    rng = np.random.default_rng(0)
    for size in (3, 40):
        points, queries = (rng.normal(size=(n, size)).astype(np.float32) for n in (50, 7))
        gaps = ((queries[:, None] - points[None]) ** 2).sum(axis=2)
        expected = gaps.argsort(axis=1)[:, :4]
        np.testing.assert_array_equal(_find_nearest(queries, points, 4), expected)


def test_a_model_source_is_a_tree_of_arrays() -> None:
    source = learned.source_from_model("bisimulation", build_random(), discount=DISCOUNT)
    import jax

    copy = jax.tree.map(lambda leaf: jnp.asarray(leaf), source)
    assert isinstance(copy, ModelSource)
    assert copy.summary == ()
    np.testing.assert_array_equal(copy.values, source.values)
