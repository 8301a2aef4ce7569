"""n-step targets of d^pi on recorded episodes, against loops and exact distances."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray

from bisimetric import MDP, InputError, exact, learned
from bisimetric.learned import (
    FreeNetwork,
    MetricNetwork,
    PairQConfig,
    api,
    files,
    n_step,
    source_from_mdp,
    source_from_transitions,
)
from bisimetric.learned.castro2020 import Castro2020Config, PairNetwork
from bisimetric.learned.n_step import (
    build_castro2020_objective,
    build_pair_q_objective,
    compute_bootstrap,
    compute_recorded_part,
    count_steps,
    embed_states,
    look_up_bootstrap,
)
from bisimetric.learned.pair_q_loss import build_batch_objective
from bisimetric.learned.sources import EpisodeBatch, TransitionSource
from bisimetric.transitions import Transitions
from tests.learned_references import compile_quickly, contains, fit_flat  # noqa: F401 - a fixture

DISCOUNT = 0.8
METRIC = MetricNetwork((8,), num_groups=4, group_size=2)
SMALL = PairQConfig(METRIC, batch_size=8, warm_up=2, target_update_period=4)
HORIZONS = [2, 3, 5, math.inf]


def walk(terminated: tuple[int, ...] = (6, 9, 25), cut: tuple[int, ...] = (14, 20)) -> Transitions:
    """Thirty steps in random observations: three episodes terminate, the others are truncated."""
    rng = np.random.default_rng(0)
    count = 30
    x, rewards = rng.normal(size=(count, 2)), rng.normal(size=count)
    following = np.roll(x, -1, axis=0)
    ended, truncated = np.zeros((2, count), bool)
    ended[list(terminated)], truncated[list(cut)] = True, True
    following[ended | truncated] = rng.normal(size=(int((ended | truncated).sum()), 2))
    following[-1] = rng.normal(size=2)
    return Transitions(x, np.zeros(count, int), rewards, following, ended, truncated)


def remaining_of(data: Transitions) -> list[tuple[int, bool]]:
    """The recorded steps of each step's episode, and whether it terminates."""
    found = []
    for i in range(len(data)):
        j = i
        while not (data.terminated[j] or data.truncated[j] or j + 1 == len(data)):
            j += 1
        found.append((j - i + 1, bool(data.terminated[j])))
    return found


def reachable(data: Transitions, source: TransitionSource) -> Any:
    """The features of all next states, then those of the terminal state."""
    return np.concatenate([source.scaling(data.next_observations), source.scaling.terminal])


def targets_by_loops(
    data: Transitions, rows: list[int | None], n: float, psi: NDArray[Any]
) -> NDArray[np.float64]:
    """T of all pairs of rows, step by step; None is the terminal state.

    psi is the target network on all pairs of `reachable` states.
    """
    left = remaining_of(data)

    def reward(i: int | None, k: int) -> float:
        return 0.0 if i is None or k >= left[i][0] else float(data.rewards[i + k])

    def limit(i: int | None) -> float:
        return math.inf if i is None or left[i][1] else left[i][0]

    def ended(i: int | None, k: float) -> bool:
        return i is None or (left[i][1] and left[i][0] <= k)

    def state(i: int | None, k: int) -> int:
        return -1 if i is None or ended(i, k) else i + k - 1

    T = np.zeros((len(rows), len(rows)))
    for a, i in enumerate(rows):
        for b, j in enumerate(rows):
            if a == b:
                continue
            steps = min(n, limit(i), limit(j))
            k = 0
            while k < steps and not (ended(i, k) and ended(j, k)):
                T[a, b] += DISCOUNT**k * abs(reward(i, k) - reward(j, k))
                k += 1
            if k == steps and not (ended(i, k) and ended(j, k)):
                T[a, b] += DISCOUNT**k * float(psi[state(i, k), state(j, k)])
    return T


def random_parameters(network: Any, features: int, seed: int) -> Any:
    rng = np.random.default_rng(seed)
    shapes = jax.eval_shape(lambda key: network.init(key, features), jax.random.key(0))
    return jax.tree.map(lambda s: (0.5 * rng.normal(size=s.shape)).astype(np.float32), shapes)


@pytest.fixture(params=["cpu", "accelerator"])
def block_sizes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the sizes of blocks to those of a CPU, or of a GPU."""
    if request.param == "accelerator":
        monkeypatch.setattr(n_step, "REWARD_BLOCKS", {})
        monkeypatch.setattr(n_step, "BOOTSTRAP_BLOCKS", {})


@pytest.mark.usefixtures("block_sizes")
@pytest.mark.parametrize(
    ("form", "n", "half", "tabulate"),
    [
        *((METRIC, n, False, False) for n in HORIZONS),
        (METRIC, math.inf, True, False),
        (METRIC, math.inf, True, True),
        (METRIC, 3, True, True),
        (FreeNetwork((8,)), 3, False, False),
    ],
)
def test_the_loss_is_that_of_the_loops(form: Any, n: float, half: bool, tabulate: bool) -> None:
    data = walk()
    source = source_from_transitions("on_policy", data, half_precision=half)
    network = PairQConfig(form).build_network(source, "on_policy", DISCOUNT)
    network = dataclasses.replace(network, diameter_bound=0.7)
    now, before = (random_parameters(network, 3, seed) for seed in (1, 2))
    size, key = 16, jax.random.key(5)
    steps = count_steps(source, n)
    objective = build_pair_q_objective(source, network, DISCOUNT, size, steps, tabulate)
    batch = source.sample_steps(key, size)
    rows: list[int | None] = [*np.asarray(batch.row).tolist()[:-1], None]

    evaluate = jax.jit(lambda each, x: network.network.values(each, x, x)[0])
    x = reachable(data, source)
    psi = network.unit * np.mean([evaluate(each, x) for each in before], axis=0)
    T = np.minimum(targets_by_loops(data, rows, n, psi) / network.unit, 0.7)
    assert (T == 0.7).any()
    assert (T < 0.7).any()
    values = [np.asarray(evaluate(each, batch.x)) for each in now]
    expected = sum(np.mean((each - T) ** 2) for each in values)
    loss = jax.jit(objective.loss)(now, objective.prepare(before, jnp.int32(0)), key)
    tolerance = 3e-2 if half else 2e-4
    assert float(loss) == pytest.approx(expected, rel=tolerance)


@pytest.mark.parametrize("n", [1, 3, math.inf])
@pytest.mark.parametrize("num_networks", [1, 2])
def test_a_bootstrap_is_looked_up(
    n: float, num_networks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(n_step, "EMBEDDING_BLOCK", 8)
    source = source_from_transitions("on_policy", walk(), half_precision=True)
    config = dataclasses.replace(SMALL, num_networks=num_networks)
    network = config.build_network(source, "on_policy", DISCOUNT)
    target = random_parameters(network, 3, 1)
    batch = source.sample_steps(jax.random.key(3), 24)
    _, steps, ended = compute_recorded_part(source, batch, count_steps(source, n), DISCOUNT)
    assert len(np.unique(steps)) > (1 if n > 1 else 0)
    embedded = embed_states(source, network, target)
    assert embedded.shape == (num_networks, len(source.x), 2, 4)
    found = look_up_bootstrap(source, batch, steps, ended, embedded)
    expected = compute_bootstrap(
        source,
        batch,
        steps,
        ended,
        lambda x: jnp.mean(
            jnp.stack([network.network.values(each, x, x)[0] for each in target]), axis=0
        ),
    )
    np.testing.assert_allclose(found, expected, atol=2e-3)
    assert float(jnp.abs(expected).max()) > 0.1


def test_only_recorded_returns_of_metric_networks_are_looked_up() -> None:
    half = source_from_transitions("on_policy", walk(), half_precision=True)
    full = source_from_transitions("on_policy", walk())
    for source, lookahead, form, expected in (
        (half, math.inf, METRIC, True),
        (half, 3, METRIC, False),
        (full, math.inf, METRIC, False),
        (half, math.inf, FreeNetwork((8,)), False),
    ):
        config = dataclasses.replace(SMALL, network=form, lookahead=lookahead)
        network = config.build_network(source, "on_policy", DISCOUNT)
        target = random_parameters(network, 3, 1)
        objective = config.build_objective(source, network, "on_policy", DISCOUNT)
        prepared = objective.prepare(target, jnp.int32(0))
        assert isinstance(prepared, jax.Array) == expected
        more = 2 * len(half.x) * 8 // 2 if expected else 0
        assert config.estimate_batch_memory(source, network)[1] == 3 * 8**2 + more


@pytest.mark.usefixtures("block_sizes")
@pytest.mark.parametrize("n", [2, math.inf])
def test_the_loss_of_castro2020_is_that_of_the_loops(n: float) -> None:
    data = walk()
    source = source_from_transitions("on_policy", data)
    network = PairNetwork((8,), output_activation="softplus")
    now, before = (random_parameters(network, 3, seed) for seed in (1, 2))
    size, key, step = 12, jax.random.key(7), jnp.int32(10)
    objective = build_castro2020_objective(
        source, network, DISCOUNT, size, 5, 0.5, count_steps(source, n)
    )
    batch = source.sample_steps(key, size)
    rows: list[int | None] = [*np.asarray(batch.row).tolist()[:-1], None]
    evaluate = jax.jit(lambda each, x: network.table(each, x, x))
    T = targets_by_loops(
        data, rows, n, 0.75 * np.asarray(evaluate(before, reachable(data, source)))
    )
    psi = np.asarray(evaluate(now, batch.x))
    loss = jax.jit(objective.loss)(now, objective.prepare(before, step), key)
    assert float(loss) == pytest.approx(np.mean((psi - T) ** 2), rel=1e-4)


def test_one_step_is_the_loss_of_single_transitions() -> None:
    source = source_from_transitions("on_policy", walk())
    config = dataclasses.replace(SMALL, lookahead=1)
    network = config.build_network(source, "on_policy", DISCOUNT)
    now, before = (random_parameters(network, 3, seed) for seed in (1, 2))
    plain = build_batch_objective(source, network, DISCOUNT, 8).loss
    chosen = config.build_objective(source, network, "on_policy", DISCOUNT).loss
    general = jax.jit(build_pair_q_objective(source, network, DISCOUNT, 8, 1).loss)
    plain, chosen = (jax.jit(jax.value_and_grad(each)) for each in (plain, chosen))
    for seed in range(5):
        key = jax.random.key(seed)
        one, other = (jax.tree.leaves(each(now, before, key)) for each in (plain, chosen))
        for a, b in zip(one, other, strict=True):
            np.testing.assert_array_equal(a, b)
        assert float(general(now, before, key)) == pytest.approx(float(one[0]), rel=1e-5)


def record_chain(lengths: list[int], *, truncate: tuple[int, ...] = ()) -> Transitions:
    """Episodes of a deterministic chain of 9 states that ends after state 8; starts vary."""
    rewards = np.array([0.0, 1.0, 0.5, 2.0, 0.0, 0.0, 1.5, 1.0, 3.0])
    states = np.concatenate([np.arange(9 - each, 9) for each in lengths])
    ended = states == 8
    truncated = np.zeros(len(states), bool)
    keep = np.ones(len(states), bool)
    for last in np.flatnonzero(ended)[list(truncate)]:
        ended[last], keep[last] = False, False
        truncated[last - 1] = True
    data = Transitions(
        states, np.zeros(len(states), int), rewards[states], np.minimum(states + 1, 8), ended,
        truncated, num_states=9,
    )  # fmt: skip
    return data[np.flatnonzero(keep)]


@pytest.mark.parametrize("discount", [0.0, 0.9, 0.99])
def test_recorded_returns_are_the_exact_distance(discount: float) -> None:
    data = record_chain([9, 5, 7])
    source = source_from_transitions("on_policy", data)
    rows = jnp.arange(len(data))
    batch = EpisodeBatch(source.x, rows, source.remaining, jnp.ones(len(data), bool))  # type: ignore[arg-type]
    n = count_steps(source, math.inf)
    assert n == 9
    total, _, ended = compute_recorded_part(source, batch, n, discount)
    assert np.asarray(ended).all()
    reference = exact.on_policy(data.to_mdp(discount=discount)).values
    states = np.asarray(data.states)
    np.testing.assert_allclose(total, reference[np.ix_(states, states)], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("n", [2, 4, math.inf])
def test_a_bootstrap_with_the_exact_distance_changes_nothing(n: float) -> None:
    """The exact d^pi solves the n-step equation, for truncated episodes, too."""
    data = record_chain([9, 5, 7, 9], truncate=(1, 3))
    assert data.truncated.sum() == 2
    source = source_from_transitions("on_policy", data)
    reference = jnp.asarray(exact.on_policy(data.to_mdp(discount=0.9)).values, jnp.float32)
    everything = jnp.asarray(
        np.concatenate([source.scaling(np.eye(9, dtype=np.float32)), source.scaling.terminal])
    )

    def look_up(x: Any) -> Any:
        state = jnp.argmin(jnp.abs(x[:, None] - everything[None]).sum(axis=-1), axis=1)
        return reference[state[:, None], state[None, :]]

    @jax.jit
    def compute(key: Any) -> Any:
        batch = source.sample_steps(key, 20)
        total, steps, ended = compute_recorded_part(source, batch, count_steps(source, n), 0.9)
        bootstrap = compute_bootstrap(source, batch, steps, ended, look_up)
        return total + 0.9**steps * bootstrap, look_up(batch.x)

    for seed in range(3):
        targets, expected = compute(jax.random.key(seed))
        np.testing.assert_allclose(targets, expected, rtol=1e-5, atol=1e-5)


def test_the_steps_that_remain() -> None:
    source = source_from_transitions("on_policy", walk())
    assert np.asarray(source.remaining).tolist() == [n for n, _ in remaining_of(walk())]
    assert source.longest_episode == 7
    for kind in ("bisimulation", "mico"):
        assert source_from_transitions(kind, walk()).remaining is None


def test_steps_of_other_actions_truncate_an_episode() -> None:
    data = Transitions([0, 1, 2, 3], [0, 0, 1, 0], [0.0] * 4, [1, 2, 3, 4], [False] * 3 + [True])
    source = source_from_transitions("on_policy", data, [0] * 5)
    assert np.asarray(source.remaining).tolist() == [2, 1, 1]


def test_a_random_sample_of_steps_has_no_episodes() -> None:
    data = walk()[np.array([4, 3, 17, 18, 2])]
    source = source_from_transitions("on_policy", data)
    # Rows 17 and 18 follow one another.
    assert np.asarray(source.remaining).tolist() == [1, 1, 2, 1, 1]


def test_steps_that_are_not_stored_yet_are_not_part_of_the_recording() -> None:
    source = source_from_transitions("on_policy", walk(), growth=(5, 1))
    batch = source.available_at(jnp.int32(0)).sample_steps(jax.random.key(0), 20)
    row, recorded = np.asarray(batch.row)[:-1], np.asarray(batch.remaining)[:-1]
    np.testing.assert_array_equal(row + recorded, 5)
    assert not np.asarray(batch.terminates)[:-1].any()
    assert bool(batch.terminates[-1])


def test_targets_have_no_gradient_and_training_is_finite() -> None:
    data = walk()
    for config in (
        dataclasses.replace(SMALL, lookahead=math.inf),
        Castro2020Config(PairNetwork((8,)), batch_size=8, target_update_period=4, lookahead=3),
    ):
        result = fit_flat(
            "on_policy",
            source_from_transitions("on_policy", data),
            discount=DISCOUNT,
            updates=8,
            seeds=[0, 1],
            config=config,
            log_every=4,
        )
        assert np.isfinite(result.history["loss"]).all()


def test_the_lookahead_is_at_most_the_longest_episode() -> None:
    source = source_from_transitions("on_policy", walk())
    for lookahead, expected in ((1, 1), (4, 4), (math.inf, 7)):
        config = dataclasses.replace(SMALL, lookahead=lookahead)
        network = config.build_network(source, "on_policy", DISCOUNT)
        assert config.effective_lookahead(source, network) == expected
        other = Castro2020Config(PairNetwork((8,)), batch_size=8, lookahead=lookahead)
        assert other.effective_lookahead(source, other.network) == expected
    both = source_from_transitions("bisimulation", walk())
    assert SMALL.effective_lookahead(both, SMALL.build_network(both, "bisimulation", 0.9)) == 1


def test_more_lookahead_covers_the_horizon_earlier() -> None:
    config = Castro2020Config(PairNetwork((8,)))
    found = [config.count_horizon_updates(0.9, n) for n in (1, 5, 50)]
    assert found[0] > found[1] > found[2] == 0
    assert config.count_settling_updates(0.9, 5) < config.count_settling_updates(0.9)


@pytest.mark.parametrize("value", [0, -1, 2.5, "ten", math.nan, -math.inf])
@pytest.mark.parametrize("form", [PairQConfig, Castro2020Config])
def test_lookahead_is_validated(form: Any, value: Any) -> None:
    with pytest.raises(InputError, match=contains(f"{form.__name__}: lookahead is {value!r}")):
        form(lookahead=value)


def test_recorded_returns_need_a_recording() -> None:
    mdp = MDP.deterministic([[1], [0]], [[0.0], [1.0]], discount=0.5)
    config = dataclasses.replace(SMALL, lookahead=math.inf)
    with pytest.raises(InputError, match="lookahead is infinite, which is for recorded episodes"):
        learned.on_policy(mdp, updates=2, config=config)
    source = source_from_mdp("on_policy", mdp)
    with pytest.raises(InputError, match="lookahead is infinite"):
        learned.fit("on_policy", source, discount=0.5, updates=2, config=config)


def test_a_run_is_resumed_with_the_same_lookahead(tmp_path: Path) -> None:
    source = source_from_transitions("on_policy", walk())
    path = tmp_path / "run.safetensors"

    def run(lookahead: float, **options: Any) -> Any:
        config = dataclasses.replace(SMALL, lookahead=lookahead)
        return fit_flat(
            "on_policy", source, discount=DISCOUNT, updates=8, config=config, log_every=4, **options
        )

    whole = run(math.inf, checkpoint=path)
    _, metadata = files.read_tensors(path, files.RUN_FORMAT, "learning run")
    assert metadata["lookahead"] == math.inf
    assert metadata["effective_lookahead"] == 7
    resumed = run(math.inf, resume=path)
    for a, b in zip(
        jax.tree.leaves(whole.state.parameters),
        jax.tree.leaves(resumed.state.parameters),
        strict=True,
    ):
        np.testing.assert_array_equal(a, b)
    with pytest.raises(InputError, match="its lookahead is inf and here it is 3"):
        run(3, resume=path)


def test_a_learned_distance_reports_its_lookahead(tmp_path: Path) -> None:
    config = dataclasses.replace(SMALL, lookahead=math.inf)
    d = learned.on_policy(walk(), discount=DISCOUNT, updates=40, config=config)
    assert d.metadata["effective_lookahead"] == 7
    d.save(tmp_path / "d.safetensors")
    loaded = learned.LearnedDistance.load(tmp_path / "d.safetensors")
    assert loaded.metadata["lookahead"] == math.inf


def test_defaults_depend_on_kind_data_and_device() -> None:
    data = walk()
    small = learned.choose_config("on_policy", data, "cpu")
    source = source_from_transitions("on_policy", data)
    assert learned.choose_config("on_policy", source, "cpu") == small
    assert isinstance(small, PairQConfig)
    assert (small.batch_size, small.num_networks, small.lookahead) == (32, 1, 10)
    assert (small.network.fourier_features, small.network.activation) == (1, "tanh")
    nine = np.arange(36.0).reshape(4, 9)
    wide = Transitions(*(nine, [0] * 4, [0.0, 1.0] * 2, nine, [False] * 4))
    assert learned.choose_config("on_policy", wide, "cpu").network.fourier_features == 0
    ids = record_chain([9])
    assert learned.choose_config("on_policy", ids, "cpu").network.fourier_features == 0
    assert learned.choose_config("bisimulation", data, "cpu") == PairQConfig()
    mdp = MDP.deterministic([[1], [0]], [[0.0], [1.0]], discount=0.5)
    assert learned.choose_config("on_policy", mdp, "cpu") == PairQConfig()


def test_a_run_without_a_config_takes_the_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[Any] = []

    def remember(*_: Any, **options: Any) -> Any:
        found.append((options["config"], options["updates"]))
        raise KeyboardInterrupt

    monkeypatch.setattr(api, "fit", remember)
    given = PairQConfig(METRIC)
    for options in ({}, {"updates": 5}, {"config": given}):
        with pytest.raises(KeyboardInterrupt):
            learned.on_policy(walk(), options=learned.RunOptions(device="cpu"), **options)
    small = learned.choose_config("on_policy", walk(), "cpu")
    assert found == [(small, 20_000), (small, 5), (given, 24_000)]
