"""The distance of embeddings that is never stored by pairs: its values and its derivative."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bisimetric.learned.networks import pair_layer as module
from bisimetric.learned.networks.pair_layer import sum_group_max
from tests.learned_references import Table, compile_quickly  # noqa: F401 - a fixture

PATHS = {"at once": 2**19, "row by row": 0}


@pytest.fixture(params=PATHS)
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways to compute it, as on a processor."""
    monkeypatch.setattr(module, "get_platform", lambda: "cpu")
    monkeypatch.setattr(module, "MAX_UNCHUNKED", PATHS[request.param])
    return str(request.param)


def embeddings(n: int, m: int, size: int, groups: int, key: int = 0) -> tuple[Table, Table, Table]:
    rng = np.random.default_rng(key)
    U, V = rng.normal(size=(n, size, groups)), rng.normal(size=(m, size, groups))
    return U.astype(np.float32), V.astype(np.float32), rng.normal(size=(n, m)).astype(np.float32)


def plain(U: Any, V: Any) -> Any:
    """The formula at the head of pair_layer.py, all pairs at once."""
    return jnp.abs(U[:, None] - V[None]).max(axis=2).sum(axis=-1)


def with_slopes(how: Any, U: Table, V: Table, w: Table) -> list[Table]:
    """The distances, and their derivatives in the direction w; compiled anew."""

    @jax.jit
    def both(U: Any, V: Any, w: Any) -> Any:
        value, back = jax.vjp(lambda *each: how(*each), U, V)
        return value, *back(w)

    return [np.asarray(each) for each in both(U, V, w)]


def by_loops(U: Table, V: Table, w: Table) -> list[Table]:
    """The same by loops; where coordinates tie, each of them has its slope."""
    (n, size, groups), m = U.shape, len(V)
    value, dU, dV = np.zeros((n, m)), np.zeros(U.shape), np.zeros(V.shape)
    for i in range(n):
        for j in range(m):
            for g in range(groups):
                apart = U[i, :, g] - V[j, :, g]
                most = np.abs(apart).max()
                value[i, j] += most
                for k in range(size):
                    if abs(apart[k]) == most:
                        dU[i, k, g] += w[i, j] * np.sign(apart[k])
                        dV[j, k, g] -= w[i, j] * np.sign(apart[k])
    return [value, dU, dV]


def close(found: list[Table], expected: list[Table]) -> None:
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=2e-6 * max(1.0, float(np.abs(other).max())))


@pytest.mark.parametrize("shape", [(5, 7, 3, 4), (4, 4, 1, 2), (3, 2, 4, 1), (1, 1, 1, 1)])
@pytest.mark.usefixtures("path")
def test_values_and_slopes_are_those_of_plain_jax(shape: tuple[int, int, int, int]) -> None:
    given = embeddings(*shape)
    found = with_slopes(sum_group_max, *given)
    assert found[0].shape == shape[:2]
    close(found, with_slopes(plain, *given))
    close(found, by_loops(*given))


@pytest.mark.usefixtures("path")
def test_slopes_are_those_of_differences() -> None:
    U, V, w = embeddings(4, 3, 2, 3, key=1)
    with jax.enable_x64(True):
        U, V, w = (np.asarray(each, np.float64) for each in (U, V, w))
        _, dU, dV = with_slopes(sum_group_max, U, V, w)
        step = 1e-6

        def near(at: Table) -> Table:
            moves = step * np.eye(at.size).reshape(at.size, *at.shape)
            return np.concatenate([at + moves, at - moves])

        values = jax.jit(jax.vmap(lambda U, V: jnp.sum(w * sum_group_max(U, V)), in_axes=(0, None)))
        above, below = np.asarray(values(near(U), V)).reshape(2, -1)
        np.testing.assert_allclose(dU.ravel(), (above - below) / (2 * step), atol=1e-8)
        # Both ways round it is the same distance, so that this is the slope of V.
        back = jax.jit(jax.vmap(lambda V, U: jnp.sum(w * sum_group_max(U, V)), in_axes=(0, None)))
        above, below = np.asarray(back(near(V), U)).reshape(2, -1)
        np.testing.assert_allclose(dV.ravel(), (above - below) / (2 * step), atol=1e-8)
        assert np.abs(dU).max() > 0.1


@pytest.mark.usefixtures("path")
def test_coordinates_that_tie_all_have_their_slope() -> None:
    U = np.array([[[1.0, 0.5], [-1.0, 2.0], [0.5, -2.0]]], np.float32)
    V = np.zeros((2, 3, 2), np.float32)
    w = np.array([[1.0, 10.0]], np.float32)
    value, dU, dV = with_slopes(sum_group_max, U, V, w)
    np.testing.assert_array_equal(value, [[3.0, 3.0]])
    np.testing.assert_array_equal(dU, 11 * np.array([[[1, 0], [-1, 1], [0, -1]]]))
    np.testing.assert_array_equal(dV[0], -dU[0] / 11)
    close([value, dU, dV], by_loops(U, V, w))
    # Small whole numbers tie often.
    rng = np.random.default_rng(2)
    U, V = (rng.integers(-1, 2, (5, 3, 4)).astype(np.float32) for _ in "UV")
    w = np.ones((5, 5), np.float32)
    close(with_slopes(sum_group_max, U, V, w), by_loops(U, V, w))


@pytest.mark.usefixtures("path")
def test_embeddings_that_are_equal_are_at_zero_without_a_slope() -> None:
    U, _, w = embeddings(4, 4, 3, 2, key=3)
    value, dU, dV = with_slopes(sum_group_max, U, U.copy(), w * np.eye(4, dtype=np.float32))
    assert (value.diagonal() == 0).all()
    assert value[0, 1] > 0
    assert not dU.any()
    assert not dV.any()


def test_both_ways_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    given = embeddings(9, 6, 4, 5, key=4)
    found = []
    for little in PATHS.values():
        monkeypatch.setattr(module, "MAX_UNCHUNKED", little)
        found.append(with_slopes(sum_group_max, *given))
    close(*found)
    # What is taken row after row is never held at once: no array of all differences.
    text = str(jax.make_jaxpr(lambda *each: sum_group_max(*each))(*given[:2]))
    assert "9,6,5" not in text


def test_a_processor_takes_row_after_row_of_much_and_others_all_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    little, much = jnp.zeros((8, 4, 64)), jnp.zeros((256, 4, 64))
    monkeypatch.setattr(module, "get_platform", lambda: "cpu")
    assert module._fits_at_once(little, little)
    assert not module._fits_at_once(much, much)
    monkeypatch.setattr(module, "get_platform", lambda: "gpu")
    assert module._fits_at_once(much, much)
