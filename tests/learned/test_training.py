"""Training step by step against a plain loop; keys, parts, records, and what it comes to."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from bisimetric import MDP, exact, worlds
from bisimetric.distance import Distance
from bisimetric.errors import Diverged
from bisimetric.learned import (
    FeatureScaling,
    FitResult,
    _fit,
    evaluation,
    files,
    fit,
    source_from_mdp,
    source_from_transitions,
    training,
)
from bisimetric.learned.castro2020 import Castro2020Config, FunctionalNetwork, PairNetwork
from bisimetric.learned.losses import LearnedKind
from bisimetric.learned.sources import ANY_ACTION, StateSource, TrainingSource
from tests.learned_references import (  # noqa: F401 - a fixture
    KINDS,
    PLAIN,
    SMALL,
    STATES,
    TABULAR,
    TRIANGLE,
    compile_quickly,
    fit_flat,
    record,
    walk,
)

DISCOUNT = 0.5
THREE = (7, 1, 3)

TABLE = Castro2020Config(
    TABULAR, batch_size=32, learning_rate=0.02, target_update_period=20, horizon_growth=0.7
)
"""With these a table of numbers comes within 1% of the exact metric in a few thousand updates."""


def run(
    seed: int = 0, updates: int = 8, source: TrainingSource = STATES, **options: Any
) -> FitResult:
    """Run a few updates; most runs have the same configuration, which is compiled once."""
    options = {"config": SMALL, "seeds": [seed], "log_every": 4, **options}
    return fit_flat("bisimulation", source, discount=DISCOUNT, updates=updates, **options)


def close(one: Any, other: Any) -> None:
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)


def leaves(fitted: FitResult, seed: int = 0) -> list[Any]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(fitted.parameters(seed))]


def same(one: list[Any], other: list[Any]) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def pairs(parameters: Any, x: Any, y: Any) -> Any:
    """psi of all pairs, one state beside the other."""
    left, right = jnp.repeat(x, len(y), axis=0), jnp.tile(y, (len(x), 1))
    layer = jnp.concatenate([left, right], axis=1)
    for dense in parameters:
        layer = jax.nn.relu(layer @ dense["weights"] + dense["biases"])
    return layer.reshape(len(x), len(y))


def by_hand(
    source: TrainingSource, settings: Castro2020Config, key: int, steps: int
) -> tuple[Any, Any, Any]:
    """The paper's training for d~, a step at a time: the target at 0, 3, 6, ..., beta 1 - 0.9^k.

    Returns the parameters, those of the target, and the losses.
    """
    adam = optax.adam(settings.learning_rate, eps=settings.epsilon)

    @jax.jit
    def step(parameters: Any, target: Any, memory: Any, beta: Any, drawn: Any) -> Any:
        if isinstance(source, StateSource):
            state, action = source.sample_state_actions(drawn, settings.batch_size)
            x, reward = source.compute_features()[state], source.reward[state, action]
            x_next = source.compute_features()[source.successor[state, action]]
        else:
            x, action, reward, x_next = source.sample_batch(drawn, settings.batch_size)

        def loss(each: Any) -> Any:
            gap = jnp.abs(reward[:, None] - reward)
            here, ahead = pairs(target, x, x), pairs(target, x_next, x_next)
            T = jnp.maximum(gap + DISCOUNT * beta * ahead, beta * here)
            T = (1 - jnp.eye(settings.batch_size)) * T
            W = (
                (action[:, None] == action)
                | (action[:, None] == ANY_ACTION)
                | (action == ANY_ACTION)
            )
            return jnp.mean(W * (pairs(each, x, x) - T) ** 2)

        value, slope = jax.value_and_grad(loss)(parameters)
        change, memory = adam.update(slope, memory, parameters)
        return optax.apply_updates(parameters, change), memory, value

    start = training.initialise_state(
        settings, settings.network, source.scaling.num_features, jax.random.key(key)[None]
    )
    parameters = jax.tree.map(lambda leaf: leaf[0], start.parameters)
    memory = adam.init(parameters)
    kept, target, losses = start.key[0], None, []
    for i in range(steps):
        if i % settings.target_update_period == 0:
            target = parameters
        beta = 1 - settings.horizon_growth ** (i // settings.target_update_period)
        kept, drawn = jax.random.split(kept)
        parameters, memory, value = step(parameters, target, memory, np.float32(beta), drawn)
        losses.append(float(value))
    return parameters, target, losses


@pytest.mark.parametrize("source", [STATES, record(1, ends=True)], ids=["states", "record"])
def test_training_is_the_papers_loop(source: TrainingSource) -> None:
    settings = Castro2020Config(
        PairNetwork((5,), output_activation="relu"),
        batch_size=6,
        learning_rate=0.01,
        target_update_period=3,
        horizon_growth=0.9,
    )
    parameters, target, losses = by_hand(source, settings, 4, 11)
    done = fit("bisimulation", source, discount=DISCOUNT, updates=11, seeds=[4], config=settings)
    assert done.history["loss"][0, 0] == pytest.approx(np.mean(losses), rel=1e-5)
    close(done.parameters(0), parameters)
    close(jax.tree.map(lambda leaf: leaf[0], done.state.target), target)
    moved = jax.tree.leaves(parameters)[1] - jax.tree.leaves(target)[1]
    assert np.abs(moved).max() > 1e-3  # the two are not one


def test_steps_are_cut_at_the_updates_of_the_target() -> None:
    for done in range(8):
        for steps in range(1, 9):
            head, periods, tail = training.plan_updates(done, steps, 3)
            assert head + 3 * periods + tail == steps
            assert (done + head) % 3 == 0 or (periods, tail) == (0, 0)
            assert head < 3
            assert tail < 3


def test_the_same_key_is_the_same_run_and_another_another() -> None:
    one, again, other = run(1), run(1), run(2)
    assert same(leaves(one), leaves(again))
    np.testing.assert_array_equal(one.history["loss"], again.history["loss"])
    assert not same(leaves(one), leaves(other))


@pytest.mark.slow
def test_several_seeds_at_once_equal_each_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    together = run(seeds=THREE)
    assert together.history["loss"].shape == (3, 2)
    assert together.seeds == THREE
    for seed, key in enumerate(THREE):
        alone = run(key)
        close(together.parameters(seed), alone.parameters(0))
        np.testing.assert_allclose(
            together.history["loss"][seed], alone.history["loss"][0], rtol=1e-5
        )
    # Side by side, as an accelerator takes them; another source is compiled anew.
    monkeypatch.setattr(training, "get_platform", lambda: "gpu")
    aside = source_from_mdp(
        "bisimulation", TRIANGLE, points=np.eye(3), scaling=dataclasses.replace(PLAIN)
    )
    beside = run(seeds=THREE, source=aside)
    assert int(beside.state.step) == 8
    close(beside.state.parameters, together.state.parameters)
    np.testing.assert_allclose(beside.history["loss"], together.history["loss"], rtol=1e-5)


@pytest.mark.parametrize("cut", [4, 2])  # at a record, and between two updates
def test_a_run_in_parts_is_the_whole_run(tmp_path: Path, cut: int) -> None:
    file = tmp_path / "run.safetensors"
    whole = run(3)
    part = run(3, updates=cut, checkpoint=file)
    assert int(part.state.step) == cut
    rest = run(3, resume=file)
    assert same(leaves(rest), leaves(whole))
    for mine, other in zip(
        jax.tree.leaves(rest.state.optimiser), jax.tree.leaves(whole.state.optimiser), strict=True
    ):
        np.testing.assert_array_equal(mine, other)
    assert rest.history["step"].tolist() == sorted({4, cut, 8})
    if cut == 4:
        np.testing.assert_array_equal(rest.history["loss"], whole.history["loss"])


def test_a_run_that_is_done_stays_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "run.safetensors"
    done = run(3, checkpoint=file)
    again = run(3, resume=file)
    assert same(leaves(done), leaves(again))
    np.testing.assert_array_equal(done.history["loss"], again.history["loss"])


def test_a_run_is_resumed_with_another_learning_rate(tmp_path: Path) -> None:
    file = tmp_path / "run.safetensors"
    done = run(3, checkpoint=file)
    slower = dataclasses.replace(SMALL, learning_rate=0.001)
    assert same(leaves(run(3, config=slower, resume=file)), leaves(done))


def test_an_interrupt_leaves_a_checkpoint_to_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "run.safetensors"
    advanced, calls = training.advance, 0

    def interrupt(*args: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise KeyboardInterrupt
        return advanced(*args, **options)

    monkeypatch.setattr(training, "advance", interrupt)
    with pytest.raises(KeyboardInterrupt):
        run(3, checkpoint=file)
    assert same(leaves(run(3, resume=file)), leaves(run(3)))


def test_checkpoints_are_written_on_the_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = []
    monkeypatch.setattr(_fit, "CHECKPOINT_SECONDS", 0.0)
    monkeypatch.setattr(files, "save_run", lambda path, done, _: written.append(done))
    run(3, checkpoint=tmp_path / "run.safetensors")
    assert [int(each.state.step) for each in written] == [4, 8, 8]
    assert [len(each.history["step"]) for each in written] == [1, 2, 2]


def test_measures_are_recorded_for_every_seed_and_nan_where_missing(tmp_path: Path) -> None:
    def largest(parameters: Any) -> dict[str, Any]:
        return {"largest": jnp.abs(parameters[0]["weights"]).max()}

    file = tmp_path / "run.safetensors"
    first = run(seeds=THREE, updates=4, checkpoint=file)
    assert set(first.history) == {"step", "loss"}
    done = run(seeds=THREE, resume=file, measure=largest)
    assert {name: each.shape for name, each in done.history.items()} == {
        "step": (2,),
        "loss": (3, 2),
        "largest": (3, 2),
    }
    assert done.history["step"].tolist() == [4, 8]
    assert np.isnan(done.history["largest"]).tolist() == [[True, False]] * 3
    for seed in range(3):
        assert done.history["largest"][seed, 1] == np.abs(leaves(done, seed)[1]).max()


def history(losses: list[list[float]], every: int, settings: Castro2020Config) -> FitResult:
    steps = np.arange(1, len(losses[0]) + 1) * float(every)
    state: Any = None
    made = {"step": steps, "loss": np.array(losses)}
    network, keys = settings.network, (0,) * len(losses)
    return FitResult("bisimulation", DISCOUNT, settings, STATES, network, 8, keys, state, made)


def test_patience_counts_records_without_a_smaller_loss_once_the_horizon_is_whole() -> None:
    at_once = Castro2020Config(
        PairNetwork((5,), output_activation="relu"), target_update_period=5, horizon_growth=0.0
    )

    def has_stalled(*losses: list[float], settings: Castro2020Config = at_once) -> bool:
        return _fit._has_stalled(history(list(losses), 10, settings), 2)

    assert has_stalled([3.0, 2.0, 2.0, 2.5])
    assert not has_stalled([3.0, 2.0, 2.5])
    assert not has_stalled([3.0, 2.0, 2.5, 1.9])
    assert not has_stalled([3.0, 2.0, 2.0, 2.5], [3.0, 2.0, 1.9, 1.8])
    # 1 - beta = 0.5^k is below 0.01 * (1 - 0.5) from the eighth update on, at step 80.
    slowly = Castro2020Config(
        PairNetwork((5,), output_activation="relu"), target_update_period=10, horizon_growth=0.5
    )
    growing = [0.1, 0.2, 0.4, 0.8, 1.0, 1.1, 1.2, 1.2]
    assert not has_stalled(growing, settings=slowly)
    assert not has_stalled([*growing, 1.2, 1.2], settings=slowly)
    assert has_stalled([*growing, 1.2, 1.2, 1.2], settings=slowly)


def test_patience_ends_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_fit, "_has_stalled", lambda done, patience: len(done.history["step"]) == 2)
    assert int(run(updates=400, patience=1).state.step) == 8


def fit_and_compare(
    kind: LearnedKind, mdp: MDP, steps: int, settings: Castro2020Config = TABLE, key: int = 0
) -> tuple[Any, Any]:
    truth: Distance = getattr(exact, kind)(mdp)
    source = source_from_mdp(kind, mdp, points=np.eye(mdp.num_states), scaling=PLAIN)
    measure = evaluation.build_reference_measure(
        truth.values, settings.network, source.compute_features()
    )
    done = fit_flat(
        kind,
        source,
        discount=mdp.discount,
        updates=steps,
        seeds=[key],
        config=settings,
        measure=measure,
        log_every=steps,
    )
    return done, truth


FIVE = MDP.deterministic(
    [[1, 0], [2, 0], [3, 1], [4, 2], [4, 4]],
    [[0.0, 1.0], [0.0, -1.0], [0.5, 0.0], [2.0, 0.0], [0.0, 0.0]],
    discount=0.8,
    policy=[0, 0, 1, 0, 0],
)


@pytest.mark.parametrize("kind", KINDS)
def test_a_table_learns_the_exact_distance(kind: LearnedKind) -> None:
    done, truth = fit_and_compare(kind, FIVE, 4_000)
    assert truth.values.max() > 1
    assert done.history["error"][0, -1] < 0.02 * truth.values.max()
    assert done.history["correlation"][0, -1] > 0.999


def test_the_papers_network_learns_the_exact_distance() -> None:
    mdp = worlds.load("pessimism", discount=0.8)
    settings = Castro2020Config(
        PairNetwork((64,), output_activation="relu"),
        batch_size=32,
        learning_rate=0.003,
        target_update_period=20,
        horizon_growth=0.7,
    )
    done, truth = fit_and_compare("bisimulation", mdp, 3_000, settings, key=1)
    assert done.history["error"][0, -1] < 0.05 * truth.values.max()


@pytest.mark.parametrize(
    ("kind", "ends"), [("bisimulation", True), ("bisimulation", False), ("on_policy", True)]
)
def test_data_gives_the_exact_distance_including_the_terminal_state(
    kind: LearnedKind, ends: bool
) -> None:
    data = walk(ends)
    policy = None if kind == "bisimulation" else [1, 1, 1]
    mdp = data.to_mdp(discount=0.8)
    assert mdp.num_states == 3 + ends
    if kind == "bisimulation":
        truth = exact.bisimulation(mdp)
    else:
        truth = exact.on_policy(mdp, [1] * mdp.num_states)
    scale = FeatureScaling(np.zeros(3, np.float32), np.ones(3, np.float32), ends)
    source = source_from_transitions(kind, data, policy, scaling=scale)
    batch = Castro2020Config(
        TABULAR, batch_size=16, learning_rate=0.02, target_update_period=20, horizon_growth=0.7
    )
    done = fit(kind, source, discount=0.8, updates=3_000, config=batch)
    found = np.asarray(done.parameters(0))
    np.testing.assert_allclose(
        np.maximum(found, found.T), truth.values, atol=0.03 * truth.values.max()
    )
    if ends:
        assert found[3, 3] == pytest.approx(0, abs=1e-3)
        assert truth.values[3, :3].min() > 0.1


def test_truncation_is_not_termination() -> None:
    cut, ended = (source_from_transitions("bisimulation", walk(ends)) for ends in (False, True))
    assert cut.scaling.has_terminal is False
    assert ended.scaling.has_terminal is True
    out = np.asarray(walk(True).terminated)
    # After truncation comes the observed state 2; after termination, the terminal state.
    np.testing.assert_array_equal(cut.x_next[out], cut.x[np.asarray(walk(True).states) == 2][:8])
    np.testing.assert_array_equal(ended.x_next[out], np.repeat(ended.scaling.terminal, 8, axis=0))
    assert not np.asarray(ended.x_next)[~out, -1].any()


def test_a_dead_network_raises() -> None:
    def dead(key: jax.Array, features: int) -> Any:
        parameters = PairNetwork((4,), output_activation="relu").init(key, features)
        return [parameters[0], {**parameters[1], "biases": jnp.full(1, -50.0)}]

    network = FunctionalNetwork(
        dead,
        lambda p, x, y: PairNetwork((4,), output_activation="relu").table(p, x[None], y[None])[
            0, 0
        ],
    )
    settings = Castro2020Config(network, batch_size=8)
    with pytest.raises(Diverged, match="after 0 updates the output is 0 for all pairs") as found:
        run(config=settings, updates=10)
    assert int(found.value.partial.state.step) == 0
    # Where nothing is to be learned, 0 is right; a table that has converged is not 0.
    state = found.value.partial.state
    assert _fit._is_stuck(state, state, jnp.ones(1)).tolist() == [True]
    assert _fit._is_stuck(state, state, jnp.zeros(1)).tolist() == [False]
    assert not _fit._has_zero_output(run(1))
