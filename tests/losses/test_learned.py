"""`losses.pair_q` and `losses.on_policy` equal the losses of `learned` on one batch."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bisimetric import Transitions, learned, losses
from bisimetric.learned.functional import compute_features

NUM_GROUPS, GROUP_SIZE = 3, 2


@pytest.mark.parametrize("kind", ["bisimulation", "on_policy"])
def test_equals_learned(kind: Any) -> None:
    rng = np.random.default_rng(0)
    x, x_next = rng.normal(size=(2, 12, 2))
    actions = rng.integers(2, size=12)
    data = Transitions(x, actions, rng.normal(size=12), x_next, np.zeros(12, bool))
    network = learned.MetricNetwork((8,), num_groups=NUM_GROUPS, group_size=GROUP_SIZE)
    d, other = (
        learned.initialise(kind, data, discount=0.9, seed=seed, config=learned.PairQConfig(network))
        for seed in (0, 1)
    )
    batch = learned.TransitionBatch.from_transitions(data, np.arange(12))

    def embed(parameters: Any, observations: Any) -> Any:
        """Return one embedding per action, with the coordinates of a group side by side."""
        features = compute_features(d.scaling, observations)
        groups = NUM_GROUPS * d.network.network.embed(parameters, features)
        return jnp.swapaxes(groups, -1, -2).reshape(*groups.shape[:2], -1)

    # Smaller weights, since `learned` clips targets at the diameter bound.
    target_params = jax.tree.map(lambda weights: 0.5 * weights, other.params)
    targets = jnp.stack([embed(each, batch.next_observation) for each in target_params])
    is_bisimulation = kind == "bisimulation"
    total = jnp.zeros(())
    for each in d.params:
        total += losses.pair_q(
            embed(each, batch.observation),
            targets,
            jnp.asarray(batch.reward) / d.network.unit,
            jnp.asarray(batch.terminated),
            jnp.asarray(actions if is_bisimulation else 0 * actions),
            discount=0.9,
            distance=functools.partial(losses.metric_distance, group_size=GROUP_SIZE),
        )
    expected = d.loss(d.params, target_params, batch)
    np.testing.assert_allclose(total, expected, rtol=1e-5)
    if not is_bisimulation:
        # With one action and one target network, pair Q-learning is policy evaluation.
        arguments = (jnp.asarray(batch.reward), jnp.asarray(batch.terminated))
        online, target = embed(d.params[0], batch.observation), targets[0]
        evaluated = losses.on_policy(online[:, 0], target[:, 0], *arguments, discount=0.9)
        single = losses.pair_q(online, target, *arguments, jnp.zeros(12, int), discount=0.9)
        np.testing.assert_allclose(evaluated, single, rtol=1e-6)
