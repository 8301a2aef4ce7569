"""The JAX losses equal published code on fixed tensors, with its gradients."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bisimetric import losses
from tests.losses.published import ANGLE_TOLERANCE, DATA, get_input, list_cases

CASES = list_cases()


@pytest.mark.parametrize("name", CASES)
def test_equals_published_code(name: str) -> None:
    published = DATA["published"][name]
    with jax.enable_x64(True):
        x = jnp.asarray(get_input("embeddings"))
        value, gradient = jax.value_and_grad(lambda e: CASES[name](losses, e, jnp.asarray))(x)
    atol = ANGLE_TOLERANCE if name == "mico" else 1e-9
    np.testing.assert_allclose(float(value), published["loss"], rtol=1e-10, atol=atol)
    np.testing.assert_allclose(gradient, published["gradient"], rtol=1e-6, atol=atol)


def test_reward_loss_equals_published_code() -> None:
    rewards = jnp.asarray(get_input("rewards"))
    predicted = jnp.full_like(rewards, 0.25)
    gradient = jax.grad(lambda e: losses.deepmdp_reward(e, rewards, squared=True))(predicted)
    published = DATA["published"]["deepmdp_reward"]["gradient"]
    np.testing.assert_allclose(gradient, published, rtol=1e-5)


@pytest.mark.parametrize("name", CASES)
def test_published_values_depend_on_every_input(name: str) -> None:
    """A value that ignored the batch would pass the comparison by accident."""
    x = jnp.asarray(get_input("embeddings"))
    value = float(CASES[name](losses, x, jnp.asarray))
    moved = float(CASES[name](losses, x.at[2, 1].add(0.5), jnp.asarray))
    assert abs(value - moved) > 1e-4
