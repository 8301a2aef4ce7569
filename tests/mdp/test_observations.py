"""Observations of states and their ground distance, as attributes of an MDP."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bisimetric import MDP, Distance, InputError, exact, relation, uses, worlds

X = np.array([[0.0, 0.0], [3.0, 4.0], [0.0, 0.0], [1.0, 0.0]])
STILL = np.arange(4)[:, None]
ZERO = np.zeros((4, 1))


def observed(observations: Any = X, ground_distance: Any = None, **attributes: Any) -> MDP:
    return MDP.deterministic(
        STILL,
        ZERO,
        discount=0.5,
        observations=observations,
        ground_distance=ground_distance,
        **attributes,
    )


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        (None, [0, 5, 0, 1]),
        ("l2", [0, 5, 0, 1]),
        ("euclidean", [0, 5, 0, 1]),
        ("l1", [0, 7, 0, 1]),
        ("max", [0, 4, 0, 1]),
        ("discrete", [0, 1, 0, 1]),
        (lambda x, y: np.abs(x - y).max(axis=2) * 2, [0, 8, 0, 2]),
        (2 * np.abs(X[:, None, 0] - X[:, 0]), [0, 6, 0, 2]),
    ],
)
def test_ground_distances(metric: Any, expected: list[float]) -> None:
    mdp = observed(ground_distance=metric)
    ground = mdp.ground_distance
    assert ground is not None
    assert ground(0, np.arange(4)).tolist() == expected
    np.testing.assert_array_equal(ground(np.arange(4)[:, None], np.arange(4)), ground.matrix)
    np.testing.assert_array_equal(ground.matrix, ground.matrix.T)
    assert ground.matrix.max() <= ground.largest <= ground.matrix.max() * 1.3
    assert mdp.diameter_bound == 2 * ground.largest
    np.testing.assert_array_equal(
        ground.classes[:, None] == ground.classes, ground.matrix == 0, strict=True
    )
    np.testing.assert_array_equal(relation.bisimulation(mdp), ground.classes)


def test_a_matrix_needs_no_observations() -> None:
    matrix = np.abs(X[:, None, 0] - X[:, 0])
    mdp = observed(None, matrix)
    assert mdp.observations is None
    assert mdp.ground_distance is not None
    assert mdp.ground_distance.description == "matrix"
    assert exact.bisimulation(mdp)(0, 1) == pytest.approx(6, abs=1e-6)


def test_one_number_per_state() -> None:
    assert observed(X[:, 0]).observations is not None
    assert observed(X[:, 0]).diameter_bound == 6.0


def test_neither_overflow_nor_underflow() -> None:
    ground = observed(np.array([[0, 0], [1e-200, 1e-200], [1e300, 1e300], [0, 0]])).ground_distance
    assert ground is not None
    assert ground(0, 1) == pytest.approx(2**0.5 * 1e-200)
    assert ground(0, 2) == pytest.approx(2**0.5 * 1e300)
    assert ground.classes.tolist() == [0, 1, 2, 0]
    zeros = observed(np.array([0.0, -0.0, 1.0, 2.0])).ground_distance
    assert zeros is not None
    assert zeros.classes.tolist() == [0, 0, 1, 2]


def test_replace() -> None:
    mdp = observed(ground_distance="l1")
    other = mdp.replace(discount=0.9)
    assert other.ground_distance is mdp.ground_distance
    moved = mdp.replace(observations=2 * X)
    assert moved.ground_distance is not None
    assert moved.ground_distance.metric == "l1"
    assert moved.ground_distance(0, 1) == 14
    plain = mdp.replace(observations=None)
    assert plain.observations is None
    assert plain.ground_distance is None
    assert "l1 ground distance" in repr(mdp)
    assert "ground distance" in mdp._repr_html_()


def test_the_chain_of_a_policy_and_the_quotient_keep_them() -> None:
    mdp = observed(ground_distance="max")
    chain = mdp.apply_policy([0] * 4)
    assert chain.ground_distance is mdp.ground_distance
    small = relation.quotient(mdp, relation.bisimulation(mdp))
    assert small.observations is not None
    assert small.observations.tolist() == X[[0, 1, 3]].tolist()
    assert small.ground_distance is not None
    assert small.ground_distance.metric == "max"
    matrix = observed(None, np.abs(X[:, None, 0] - X[:, 0]))
    small = relation.quotient(matrix, relation.bisimulation(matrix))
    assert small.ground_distance is not None
    assert small.ground_distance.matrix.tolist() == [[0, 3, 1], [3, 0, 2], [1, 2, 0]]


def test_unions() -> None:
    union = uses.disjoint_union(observed(ground_distance="l1"), observed(ground_distance="l1"))
    assert union.ground_distance is not None
    assert union.ground_distance(0, 5) == 7
    with pytest.raises(InputError, match="give both observations and one ground_distance"):
        uses.disjoint_union(observed(), observed(ground_distance="l1"))
    with pytest.raises(InputError, match="give both observations and one ground_distance"):
        uses.disjoint_union(observed(), observed(None))
    with pytest.raises(InputError, match=r"have \[2, 1\] numbers"):
        uses.disjoint_union(observed(), observed(X[:, :1]))


@pytest.mark.parametrize(
    ("observations", "metric"),
    [
        (X, "l1"),
        (X, lambda x, y: np.abs(x - y).sum(axis=2)),
        (None, np.abs(X[:, None, 0] - X[:, 0])),
    ],
)
def test_files(observations: Any, metric: Any, tmp_path: Path) -> None:
    d = exact.bisimulation(observed(observations, metric))
    d.save(tmp_path / "d.npz")
    loaded = Distance.load(tmp_path / "d.npz").mdp
    assert loaded.ground_distance is not None
    assert d.mdp.ground_distance is not None
    np.testing.assert_array_equal(loaded.ground_distance.matrix, d.mdp.ground_distance.matrix)
    np.testing.assert_array_equal(loaded.observations, d.mdp.observations)
    np.testing.assert_array_equal(exact.bisimulation(loaded).values, d.values)


def test_formats_without_observations_raise(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"to_drn: the observations of the states would be lost"):
        worlds.to_drn(observed(), tmp_path / "model.drn")


SQUARED = (X[:, None, 0] - X[:, 0]) ** 2
ASYMMETRIC = np.triu(np.ones((4, 4)), 1)


@pytest.mark.parametrize(
    ("observations", "metric", "message"),
    [
        (X[:3], None, r"observations have shape \(3, 2\)"),
        (np.full((4, 1), np.nan), None, "must be finite"),
        (np.empty((4, 0)), None, "observations are empty"),
        (X, "cosine", "ground_distance is 'cosine' and must be 'l2'"),
        (None, "l2", "there are none; pass observations"),
        (None, lambda x, y: 0, "there are none; pass observations"),
        (X, np.ones((3, 3)), r"ground_distance has shape \(3, 3\) and must be \(4, 4\)"),
        (X, np.ones((4, 4)), "of a state and itself is 1 and must be 0"),
        (X, -SQUARED, "must be finite and >= 0"),
        (X, ASYMMETRIC, r"\(s, t\) and \(t, s\) differ by 1"),
        (X, SQUARED, "violates the triangle inequality by 4"),
        (X, np.array([[0, 0, 0, 1], [0, 0, 0, 2], [0, 0, 0, 1], [1, 2, 1, 0.0]]), "at distance 0"),
    ],
)
def test_invalid_observations_raise(observations: Any, metric: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        observed(observations, metric)


def test_invalid_functions_raise() -> None:
    mdp = observed(X, lambda x, y: np.zeros(3))
    with pytest.raises(InputError, match=r"returns shape \(3,\) .* must return \(4, 4\)"):
        exact.bisimulation(mdp)
    mdp = observed(X, lambda x, y: (x - y)[..., 0])
    with pytest.raises(InputError, match="must be finite and >= 0"):
        exact.bisimulation(mdp)
