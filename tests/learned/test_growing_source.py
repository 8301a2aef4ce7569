"""Data that grows while a network learns, states that are kept once, and rates side by side."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bisimetric import learned
from bisimetric.errors import InputError
from bisimetric.learned import FeatureScaling, files, fit, source_from_transitions, training
from bisimetric.learned.castro2020 import Castro2020Config, PairNetwork
from bisimetric.learned.sources import ANY_ACTION, TransitionSource
from bisimetric.transitions import Transitions
from tests.learned_references import compile_quickly, fit_flat  # noqa: F401 - a fixture

SMALL = Castro2020Config(
    PairNetwork((4, 4), output_activation="open"),
    batch_size=8,
    target_update_period=5,
    horizon_growth=0.9,
)
COUPLED = learned.PairQConfig(learned.MetricNetwork((8,), num_groups=2, group_size=4), batch_size=8)


def steps(count: int = 60, *, ended: tuple[int, ...] = (19,), cut: tuple[int, ...] = (39,)) -> Any:
    """Episodes whose features tell the step: k on the way, 100 + k where an episode was left."""
    x = np.arange(count + 1, dtype=np.float16)[:, None] * np.ones(3, np.float16)
    following = x[1:].copy()
    out = np.array([*ended, *cut])
    following[out] = 100 + out[:, None]
    terminated, truncated = np.zeros((2, count), bool)
    terminated[list(ended)], truncated[list(cut)] = True, True
    rewards = np.arange(count) % 7 / 7
    return Transitions(x[:-1], np.arange(count) % 3, rewards, following, terminated, truncated)


def plain(ends: bool = True) -> FeatureScaling:
    return FeatureScaling(np.zeros(3), np.ones(3), ends)


def source(**options: Any) -> TransitionSource:
    options = {"scaling": plain(), "half_precision": True, **options}
    return source_from_transitions("on_policy", steps(), **options)


@pytest.mark.parametrize("ended", [(), (19,), (0, 19, 59)])
def test_deduplicated_states_give_the_same_batches(ended: tuple[int, ...]) -> None:
    data = steps(ended=ended, cut=(39, 40))
    one, two = (
        source_from_transitions("on_policy", data, scaling=plain(bool(ended)), half_precision=half)
        for half in (True, False)
    )
    assert one.x.dtype == jnp.float16
    # The states that were left, one that was entered where an episode was cut and at the last
    # step, and the end.
    left = 2 + (59 not in ended)
    assert one.x.shape == (60 + left + bool(ended), 3 + bool(ended))
    assert one.x_next.shape == (60,)
    for key in range(5):
        a, b = (each.sample_batch(jax.random.key(key), 30) for each in (one, two))
        for first, second in zip(a, b, strict=True):
            assert first.dtype == second.dtype
            np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(one.terminated, data.terminated)
    np.testing.assert_array_equal(two.terminated, data.terminated)


def test_a_policy_selects_steps_before_deduplication() -> None:
    ids = np.arange(6)
    data = Transitions(
        np.eye(7)[ids], [0, 1, 0, 0, 1, 0], np.zeros(6), np.eye(7)[ids + 1], np.zeros(6, bool),
        states=ids, next_states=ids + 1,
    )  # fmt: skip
    one, two = (
        source_from_transitions("on_policy", data, np.zeros(7, int), half_precision=half)
        for half in (True, False)
    )
    after = np.asarray(one.x)[np.asarray(one.x_next)]
    np.testing.assert_allclose(after, two.x_next, atol=1e-2)
    # Steps 2 and 3 follow one another; after 0, 3 and 5 something is left out.
    assert len(one.x) == 4 + 3


def test_features_too_large_for_half_precision_raise() -> None:
    data = Transitions(
        np.full((9, 3), 1e5), np.zeros(9, int), np.zeros(9), np.zeros((9, 3)), [0] * 9
    )
    with pytest.raises(InputError, match="too large for half precision; leave out half_precision"):
        source_from_transitions("on_policy", data, scaling=plain(False), half_precision=True)


def test_features_in_half_precision_are_kept_as_they_are() -> None:
    x = np.random.default_rng(0).standard_normal((10, 3)).astype(np.float16)
    ended = [0, 0, 0, 1, 0, 0, 0, 0, 0]
    one, two = (
        source_from_transitions(
            "on_policy",
            Transitions(y[:-1], np.zeros(9, int), np.zeros(9), y[1:], ended),
            scaling=plain(True),
            half_precision=True,
        )
        for y in (x, x.astype(np.float64))
    )
    for name in ("x", "x_next"):
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name))


@pytest.mark.parametrize("half", [True, False])
def test_no_step_is_drawn_before_it_was_stored(half: bool) -> None:
    grown = source(half_precision=half, growth=(10, 4))
    for step in (0, 1, 7, 100):
        there = grown.available_at(jnp.int32(step))
        most = min(10 + 4 * step, 60)
        seen: set[float] = set()
        for key in range(30):
            batch = there.sample_batch(jax.random.key(key), 32)
            seen |= set(np.asarray(batch.x)[np.asarray(batch.action) != ANY_ACTION, 0].tolist())
        assert max(seen) == most - 1
        assert len(seen) == most


def test_the_stratified_sampler_takes_stored_transitions_only() -> None:
    grown = source(growth=(10, 4)).available_at(jnp.int32(2))
    blocks = [
        grown.build_stratified_sampler(1, 32).sample(jax.random.key(key)) for key in range(20)
    ]
    seen = {x for each in blocks for x in np.asarray(each.x)[0, :-1, 0].tolist()}
    assert seen == set(range(18))


@pytest.mark.slow
@pytest.mark.parametrize("settings", [SMALL, COUPLED])
def test_steps_that_are_not_stored_yet_change_nothing(settings: Any) -> None:
    data = source(growth=(10, 4))

    def run(swapped: int) -> list[Any]:
        """Rewards in the other order from a step on: all in all they stay the same."""
        reward = jnp.concatenate([data.reward[:swapped], data.reward[swapped:][::-1]])
        other = dataclasses.replace(data, reward=reward)
        done = fit_flat(
            "on_policy", other, discount=0.5, updates=10, seeds=[3], config=settings, log_every=5
        )
        return jax.tree.leaves(done.parameters(0))

    whole, late, early = run(60), run(10 + 4 * 9), run(10)
    assert all((a == b).all() for a, b in zip(whole, late, strict=True))
    assert any((a != b).any() for a, b in zip(whole, early, strict=True))


def test_growth_is_part_of_the_fingerprint() -> None:
    prints = {files.compute_fingerprint(source(growth=each)) for each in (None, (10, 4), (10, 5))}
    assert len(prints) == 3


def test_growth_is_not_for_pairs_of_equal_actions() -> None:
    with pytest.raises(
        InputError, match=r"learned\.bisimulation: growth is not available.*on_policy"
    ):
        source_from_transitions("bisimulation", steps(), scaling=plain(), growth=(10, 4))
    with pytest.raises(InputError, match="growth: the first number is 0 and must be"):
        source_from_transitions("on_policy", steps(), scaling=plain(), growth=(0, 4))


@pytest.mark.slow
@pytest.mark.parametrize("platform", ["cpu", "gpu"])
def test_rates_side_by_side_are_those_of_settings_one_by_one(
    platform: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One after the other in one program, as on a processor, or all at once, as on a GPU."""
    data, rates, keys = source(growth=(10, 4)), (1e-4, 1e-2, 1e-2), (5, 5, 6)

    def run(settings: Castro2020Config, **options: Any) -> Any:
        return fit_flat(
            "on_policy", data, discount=0.9, updates=10, config=settings, log_every=5, **options
        )

    with monkeypatch.context() as patch:
        patch.setattr(training, "get_platform", lambda: platform)
        beside = run(SMALL, seeds=keys, learning_rates=rates)
    assert beside.learning_rates == rates
    for seed, (key, rate) in enumerate(zip(keys, rates, strict=True)):
        alone = run(dataclasses.replace(SMALL, learning_rate=rate), seeds=[key])
        for one, other in zip(
            jax.tree.leaves(beside.parameters(seed)),
            jax.tree.leaves(alone.parameters(0)),
            strict=True,
        ):
            np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-7)
        np.testing.assert_allclose(
            beside.history["loss"][seed], alone.history["loss"][0], rtol=1e-5
        )


def test_a_rate_per_seed_has_the_schedule_of_the_config() -> None:
    own = learned.PairQConfig(learning_rate=0.5)
    for step in (0, 300, 900):
        given = learned.PairQConfig().learning_rate_at(
            jnp.int32(step), jnp.int32(1000), jnp.float32(0.5)
        )
        assert float(given) == pytest.approx(
            float(own.learning_rate_at(jnp.int32(step), jnp.int32(1000)))
        )


@pytest.mark.parametrize(
    ("rates", "complaint"),
    [
        ([1e-3], "learning_rates has 1 entries and there are 2 seeds"),
        ([1e-3, 0.0], "learning_rates is 0.0"),
    ],
)
def test_learning_rates_are_validated(rates: list[float], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        fit(
            "on_policy",
            source(),
            discount=0.9,
            updates=5,
            config=SMALL,
            seeds=[0, 1],
            learning_rates=rates,
        )
