"""Laws of all losses: terminal states, permutations, jit, stopped gradients and clear errors."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bisimetric import InputError, losses
from tests.losses.batches import PAIR_LOSSES, build_batch, evaluate

PERMUTATION = np.array([2, 0, 1, 4, 3])


def run(name: str, **changes: Any) -> Any:
    return evaluate(losses, name, build_batch(name, jnp.asarray) | changes)


@pytest.mark.parametrize("name", PAIR_LOSSES)
def test_without_termination_the_terminal_state_is_absent(name: str) -> None:
    nowhere = jnp.zeros(build_batch(name, jnp.asarray)["terminated"].shape, bool)
    value, published = (run(name, terminated=nowhere, absorbing=each) for each in (True, False))
    np.testing.assert_allclose(value, published, rtol=1e-6)


@pytest.mark.parametrize("name", PAIR_LOSSES)
def test_termination_matters_unless_ignored(name: str) -> None:
    batch = build_batch(name, jnp.asarray)
    nowhere = jnp.zeros(batch["terminated"].shape, bool)
    assert abs(float(run(name)) - float(run(name, terminated=nowhere))) > 1e-4
    ignored = [run(name, absorbing=False, terminated=e) for e in (batch["terminated"], nowhere)]
    assert float(ignored[0]) == float(ignored[1])


@pytest.mark.parametrize("name", PAIR_LOSSES)
def test_successors_of_terminated_transitions_are_ignored(name: str) -> None:
    batch = build_batch(name, jnp.asarray)
    mask = np.asarray(batch["terminated"])
    mask = mask.reshape(*mask.shape, *(1,) * (batch["next_embeddings"].ndim - mask.ndim))
    other = jnp.where(mask, 50.0, batch["next_embeddings"])
    assert float(run(name, next_embeddings=other)) == float(run(name))


@pytest.mark.parametrize("name", PAIR_LOSSES)
def test_all_pairs_are_the_mean_over_shifts(name: str) -> None:
    batch = build_batch(name, jnp.asarray)
    if name == "pair_q":
        batch["actions"] = jnp.zeros_like(batch["actions"])
    batch["absorbing"] = False
    size = len(batch["embeddings"])
    values = [
        evaluate(losses, name, batch | {"permutation": jnp.roll(jnp.arange(size), shift)})
        for shift in range(size)
    ]
    np.testing.assert_allclose(np.mean(values), evaluate(losses, name, batch), rtol=1e-5)


@pytest.mark.parametrize("name", PAIR_LOSSES)
def test_targets_have_no_gradient(name: str) -> None:
    batch = build_batch(name, jnp.asarray)

    def loss(next_embeddings: Any) -> Any:
        return evaluate(losses, name, batch | {"next_embeddings": next_embeddings})

    assert not np.asarray(jax.grad(loss)(batch["next_embeddings"])).any()


@pytest.mark.parametrize("name", PAIR_LOSSES)
@pytest.mark.parametrize("permutation", [None, PERMUTATION])
def test_compiled_and_finite(name: str, permutation: Any) -> None:
    batch = build_batch(name, jnp.asarray)
    batch["permutation"] = None if permutation is None else jnp.asarray(permutation)

    def loss(embeddings: Any) -> Any:
        return evaluate(losses, name, batch | {"embeddings": embeddings})

    value, gradient = jax.jit(jax.value_and_grad(loss))(batch["embeddings"])
    np.testing.assert_allclose(value, loss(batch["embeddings"]), rtol=1e-5)
    assert np.isfinite(gradient).all()
    assert np.abs(gradient).max() > 1e-4
    # Equal embeddings, where norms and angles have no derivative.
    collapsed = jax.grad(loss)(jnp.zeros_like(batch["embeddings"]))
    assert np.isfinite(collapsed).all()


@pytest.mark.parametrize("name", PAIR_LOSSES)
def test_a_column_of_rewards_raises(name: str) -> None:
    """Rewards of shape (b, 1) would broadcast to all pairs, silently."""
    rewards = build_batch(name, jnp.asarray)["rewards"]
    with pytest.raises(InputError, match="has shape"):
        run(name, rewards=rewards[..., None])
    with pytest.raises(InputError, match=f"losses.{name}: discount is 1.0 and must be"):
        run(name, discount=1.0)


@pytest.mark.parametrize("name", PAIR_LOSSES)
def test_wrong_shapes_raise(name: str) -> None:
    """One index would broadcast, and a matrix would fail far from its cause."""
    for argument, value in (
        ("permutation", jnp.zeros(1, int)),
        ("terminal_embedding", jnp.zeros(7)),
        ("next_embeddings", jnp.zeros((5, 7))),
        ("embeddings", jnp.zeros(5)),
    ):
        with pytest.raises(InputError, match=f"{argument} has shape"):
            run(name, **{argument: value})
    with pytest.raises(InputError, match="rewards has shape"):
        run(name, rewards=jnp.zeros(4))


def test_self_pairs_can_be_left_out() -> None:
    batch = build_batch("mico", jnp.asarray) | {"absorbing": False, "error": "squared"}
    size = len(batch["embeddings"])
    every, own = (
        float(evaluate(losses, "mico", batch | {"permutation": order}))
        for order in (None, jnp.arange(size))
    )
    rest = float(evaluate(losses, "mico", batch | {"self_pairs": False}))
    np.testing.assert_allclose(rest, (every * size - own) / (size - 1), rtol=1e-5)


def test_double_q_selects_with_one_network_and_evaluates_with_the_other() -> None:
    x = jnp.zeros((2, 2, 1))
    first = jnp.array([[[0.0], [0.0]], [[1.0], [3.0]]])
    second = jnp.array([[[0.0], [0.0]], [[5.0], [2.0]]])
    value = losses.pair_q(
        x,
        jnp.stack([first, second]),
        jnp.zeros(2),
        jnp.zeros(2, bool),
        jnp.zeros(2, int),
        discount=0.5,
        permutation=jnp.array([1, 0]),
    )
    # The first selects action 1, worth 2 to the second; the second action 0, worth 1 to the first.
    assert float(value) == (0.5 * 1.5) ** 2


def test_unknown_names_raise() -> None:
    with pytest.raises(InputError, match="error is 'l1' and must be one of huber, squared"):
        run("mico", error="l1")
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = losses.nothing
    with pytest.raises(InputError, match="group_size is 2 and must divide the 3 coordinates"):
        losses.metric_distance(jnp.zeros(3), jnp.zeros(3), group_size=2)
