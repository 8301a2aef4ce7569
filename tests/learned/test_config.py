"""Pair Q-learning against a plain loop; seeds, resumed runs, and files."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from bisimetric import InputError, learned
from bisimetric.learned import (
    FitResult,
    FreeNetwork,
    LearnedDistance,
    MetricNetwork,
    PairQConfig,
    source_from_mdp,
    training,
)
from bisimetric.learned.networks import pair_layer
from bisimetric.learned.sources import StateSource, TrainingSource
from tests.learned_references import (  # noqa: F401 - a fixture
    PLAIN,
    TRIANGLE,
    compile_quickly,
    contains,
    fit_flat,
    record,
)

DISCOUNT = 0.5
METRIC = MetricNetwork((8,), num_groups=4, group_size=2, fourier_features=4)
TINY = PairQConfig(
    METRIC, batch_size=6, learning_rate=0.01, warm_up=2, target_update_period=4, lookahead=1
)
STATES = source_from_mdp("bisimulation", TRIANGLE, points=np.eye(3), scaling=PLAIN)


def run(
    seed: int = 0, updates: int = 8, source: TrainingSource = STATES, **options: Any
) -> FitResult:
    """Run a few updates; most runs have the same configuration, which is compiled once."""
    options = {"config": TINY, "seeds": [seed], "log_every": 4, **options}
    return fit_flat("bisimulation", source, discount=DISCOUNT, updates=updates, **options)


def leaves(tree: Any) -> list[Any]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]


def same(one: Any, other: Any) -> bool:
    pairs = zip(leaves(one), leaves(other), strict=True)
    return all(np.array_equal(a, b) for a, b in pairs)


def by_hand(
    source: TrainingSource, settings: PairQConfig, key: int, steps: int
) -> tuple[Any, Any, Any]:
    """The algorithm one update at a time: the parameters, those of the target, and the losses."""
    network = settings.build_network(source, "bisimulation", DISCOUNT)
    start = training.initialise_state(
        settings, network, source.scaling.num_features, jax.random.key(key)[None]
    )
    parameters = jax.tree.map(lambda leaf: leaf[0], start.parameters)
    rates = [float(settings.learning_rate_at(jnp.int32(i), jnp.int32(steps))) for i in range(steps)]
    adam = optax.inject_hyperparams(optax.adam)(learning_rate=rates[0], eps=settings.epsilon)
    memory = adam.init(parameters)

    def psi(each: Any, x: Any) -> Any:
        """mean_g max_k |f_agk(x) - f_agk(y)|, (A, n, n)."""
        wide = x[:, :, None] * (jnp.pi / 2 * 2.0 ** jnp.arange(4))
        flat = wide.reshape(len(x), -1)
        layer = jnp.concatenate([x, jnp.sin(flat), jnp.cos(flat)], axis=1)
        layer = jax.nn.relu(layer @ each[0]["weights"] + each[0]["biases"])
        f = (layer @ each[1]["weights"] + each[1]["biases"]).reshape(len(x), -1, 2, 4)
        return jnp.abs(f[:, None] - f[None]).max(axis=3).mean(axis=3).transpose(2, 0, 1)

    def ahead(target: Any, x: Any) -> Any:
        """One network chooses the action, the other tells its value; the mean of both ways."""
        one, two = psi(target[0], x), psi(target[1], x)
        told = [
            jnp.take_along_axis(tells, jnp.argmax(picks, axis=0)[None], axis=0)[0]
            for picks, tells in ((one, two), (two, one))
        ]
        return (told[0] + told[1]) / 2

    @jax.jit
    def step(parameters: Any, target: Any, memory: Any, drawn: Any) -> Any:
        if isinstance(source, StateSource):
            state, action = source.sample_state_actions(drawn, settings.batch_size)
            rows = (source.compute_features()[state], state, action, source.reward[state, action])
            x, x_next = rows[0], source.compute_features()[source.successor[state, action]]
            same = state[:, None] == state
            W = jnp.equal(action[:, None], action)
            blocks = [(x, rows[3], x_next, W & (action == a), same) for a in range(2)]
        else:
            each = settings.batch_size // network.num_actions
            x, _, reward, x_next = source.build_stratified_sampler(
                network.num_actions, each
            ).sample(drawn)
            one = jnp.ones((each, each), bool)
            blocks = [
                (x[a], reward[a], x_next[a], one, jnp.eye(each, dtype=bool))
                for a in range(network.num_actions)
            ]

        def loss(now: Any) -> Any:
            total, count = jnp.zeros(()), jnp.zeros(())
            for a, (x, reward, x_next, W, same) in enumerate(blocks):
                gap = jnp.abs(reward[:, None] - reward) / network.unit
                T = jnp.minimum(gap + DISCOUNT * ahead(target, x_next), network.diameter_bound)
                T = jax.lax.stop_gradient(jnp.where(same, 0.0, T))
                total += sum(jnp.sum(W * (psi(copy, x)[a] - T) ** 2) for copy in now)
                count += jnp.sum(W)
            return total / count

        value, slope = jax.value_and_grad(loss)(parameters)
        change, memory = adam.update(slope, memory, parameters)
        return optax.apply_updates(parameters, change), memory, value

    kept, target, losses = start.key[0], None, []
    for i in range(steps):
        if i % settings.target_update_period == 0:
            target = parameters
        kept, drawn = jax.random.split(kept)
        memory.hyperparams["learning_rate"] = jnp.float32(rates[i])
        parameters, memory, value = step(parameters, target, memory, drawn)
        losses.append(float(value))
    return parameters, target, losses


@pytest.mark.slow
@pytest.mark.parametrize("source", [STATES, record(1, ends=True)], ids=["states", "record"])
def test_training_is_the_plain_loop(source: TrainingSource) -> None:
    # What only shifts an embedding has a slope of 0, whose rounding Adam would make large.
    settings = dataclasses.replace(TINY, batch_size=12, target_update_period=3, epsilon=1e-3)
    parameters, target, losses = by_hand(source, settings, 4, 11)
    done = run(4, updates=11, source=source, config=settings, log_every=11)
    assert done.history["loss"][0, 0] == pytest.approx(np.mean(losses), rel=1e-4)
    for mine, yours in (
        (done.parameters(0), parameters),
        (jax.tree.map(lambda leaf: leaf[0], done.state.target), target),
    ):
        for a, b in zip(leaves(mine), leaves(yours), strict=True):
            np.testing.assert_allclose(a, b, atol=2e-5)
    assert not same(parameters, target)


def test_the_target_follows_exactly_every_period() -> None:
    """Taken step by step: what the target is was the network at the last multiple of 4."""
    network = TINY.build_network(STATES, "bisimulation", DISCOUNT)
    state = training.initialise_state(TINY, network, 3, jax.random.key(0)[None])
    how: dict[str, Any] = {"config": TINY, "network": network, "kind": "bisimulation"}
    before = []
    for i in range(9):
        before.append(state.parameters)
        state, _ = training.advance(
            state, STATES, **how, discount=DISCOUNT, updates=1, total_updates=9
        )
        assert int(state.step) == i + 1
        assert same(state.target, before[i - i % 4])
        assert not same(state.parameters, before[i])


def test_the_same_seed_gives_the_same_run_and_another_another() -> None:
    one, again, other = run(1), run(1), run(2)
    assert same(one.state.parameters, again.state.parameters)
    np.testing.assert_array_equal(one.history["loss"], again.history["loss"])
    assert not same(one.state.parameters, other.state.parameters)
    assert one.network == TINY.build_network(STATES, "bisimulation", DISCOUNT)
    assert one.updates == 8


@pytest.mark.slow
@pytest.mark.parametrize("platform", ["cpu", "gpu"])
def test_several_seeds_at_once_equal_each_alone(
    platform: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One after the other, or side by side, as an accelerator takes them."""
    source = dataclasses.replace(
        STATES, scaling=dataclasses.replace(STATES.scaling)
    )  # compiled anew
    with monkeypatch.context() as patch:
        patch.setattr(training, "get_platform", lambda: platform)
        patch.setattr(pair_layer, "get_platform", lambda: platform)
        together = run(seeds=(7, 1), source=source)
    assert together.history["loss"].shape == (2, 2)
    for seed, key in enumerate((7, 1)):
        alone = run(key)
        np.testing.assert_allclose(
            together.history["loss"][seed], alone.history["loss"][0], rtol=1e-5
        )
        # Not the weights: those that only shift an embedding follow the rounding of gradients.
        mine, other = (
            np.asarray(alone.network.table(each, jnp.eye(3), jnp.eye(3)))
            for each in (together.parameters(seed), alone.parameters(0))
        )
        np.testing.assert_allclose(mine, other, atol=1e-5 * other.max())
        assert other.max() > 0.1


@pytest.mark.parametrize("cut", [4, 6])  # at a record, and between two updates
def test_a_run_in_parts_is_the_whole_run(
    cut: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "run.safetensors"
    whole = run(3)
    # The rate depends on how many steps there are, so that a part is a run that was interrupted.
    advanced = training.advance

    def interrupt(state: Any, *args: Any, **options: Any) -> Any:
        if int(state.step) == cut:
            raise KeyboardInterrupt
        return advanced(state, *args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(training, "advance", interrupt)
        with pytest.raises(KeyboardInterrupt):
            run(3, checkpoint=file, log_every=cut)
    rest = run(3, resume=file)
    assert rest.history["step"].tolist() == sorted({cut, 8})
    assert same(rest.state.parameters, whole.state.parameters)
    assert same(rest.state.optimiser, whole.state.optimiser)
    assert same(rest.state.target, whole.state.target)
    if cut == 4:
        np.testing.assert_array_equal(rest.history["loss"], whole.history["loss"])


def test_a_run_with_decay_is_not_resumed_with_other_updates(tmp_path: Path) -> None:
    file = tmp_path / "run.safetensors"
    done = run(3, checkpoint=file)
    message = contains(f"{file} is of a run of 8 updates", "learning rate decays", "of 12")
    with pytest.raises(InputError, match=message):
        run(3, updates=12, resume=file)
    assert same(run(3, resume=file).state.parameters, done.state.parameters)
    flat = dataclasses.replace(TINY, decay=False)
    run(3, checkpoint=file, config=flat)
    longer = run(3, updates=12, resume=file, config=flat)
    assert same(longer.state.parameters, run(3, updates=12, config=flat).state.parameters)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_networks": 1}, "its num_networks is 2 and here it is 1; resume it with the same"),
        ({"warm_up": 3}, "its warm_up is 2 and here it is 3"),
        ({"decay": False}, "its decay is True and here it is False"),
        (
            {"network": MetricNetwork((8,), num_groups=2, group_size=4)},
            "its num_groups is 4 and here it is 2",
        ),
        (
            {"network": FreeNetwork((8,))},
            "its form is metric and here it is free",
        ),
    ],
)
def test_a_run_is_not_resumed_as_another(
    changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    file = tmp_path / "run.safetensors"
    run(3, checkpoint=file)
    settings = dataclasses.replace(TINY, **changes)
    with pytest.raises(InputError, match=contains(f"{file} is of another run: {message}")):
        run(3, resume=file, config=settings)


def test_a_run_is_not_resumed_by_another_algorithm(tmp_path: Path) -> None:
    file = tmp_path / "run.safetensors"
    run(3, checkpoint=file)
    paper = learned.castro2020.Castro2020Config(
        learned.castro2020.PairNetwork((8,)), batch_size=6, target_update_period=3
    )
    with pytest.raises(
        InputError, match="is of another run: its algorithm is pair-q and here it is castro2020"
    ):
        run(3, resume=file, config=paper)


@pytest.mark.slow
@pytest.mark.parametrize(
    "network",
    [METRIC, dataclasses.replace(METRIC, fourier_features="random"), FreeNetwork((8,))],
    ids=["metric", "random", "free"],
)
def test_a_learned_distance_is_saved_and_loaded(network: Any, tmp_path: Path) -> None:
    settings = dataclasses.replace(TINY, network=network)
    d = learned.bisimulation(TRIANGLE, updates=8, config=settings, seed=2)
    assert (d.metadata["form"], d.metadata["num_networks"]) == (network.form, 2)
    d.save(tmp_path / "d.safetensors")
    again = LearnedDistance.load(tmp_path / "d.safetensors", TRIANGLE)
    assert again.network == d.network
    np.testing.assert_array_equal(again.values, d.values)
    np.testing.assert_array_equal(d.values, d.values.T)
    assert d.to_distance().values[1, 1] == 0
    assert again.metadata == d.metadata


@pytest.mark.slow
def test_castro2020_has_its_own_network() -> None:
    quick = learned.castro2020.Castro2020Config(learned.castro2020.PairNetwork((4,)), batch_size=4)
    for made in (
        learned.castro2020.bisimulation(TRIANGLE, updates=2, config=quick),
        learned.bisimulation(TRIANGLE, updates=2, config=quick),
    ):
        assert made.network == learned.castro2020.PairNetwork((4,))
    ours = learned.bisimulation(TRIANGLE, updates=2, config=TINY)
    assert ours.network.network == METRIC
