"""Bounds on perturbed distances: against adversarial perturbations, and where they are attained."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from bisimetric import MDP, Distance, InputError, exact, worlds
from tests.labelled_oracle import random_mdp

KINDS: dict[str, Callable[[MDP], Distance]] = {
    "bisimulation": exact.bisimulation,
    "lax": exact.lax,
    "on_policy": lambda mdp: exact.on_policy(mdp, np.zeros(mdp.num_states, int)),
}


def perturb(
    rng: np.random.Generator, mdp: MDP, eps: float, delta: float, preserve_support: bool
) -> MDP:
    """Move eps of each row onto one state, and each reward up or down by delta."""
    P = mdp.P.toarray()
    for row in P:
        support = np.flatnonzero(row)
        target = rng.choice(support if preserve_support else len(row))
        left = eps
        for x in rng.permutation(support[support != target]):
            moved = min(left, row[x] * (1 - 1e-9) if preserve_support else row[x])
            row[x], row[target], left = row[x] - moved, row[target] + moved, left - moved
    return mdp.replace(P=P, R=mdp.R + delta * rng.choice([-1, 1], size=mdp.R.shape))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("preserve_support", [True, False])
def test_no_perturbation_exceeds_the_bound(kind: str, preserve_support: bool) -> None:
    compute, attained = KINDS[kind], 0.0
    for seed in range(24):
        rng = np.random.default_rng(seed)
        mdp = random_mdp(
            rng, deterministic=seed % 6 == 5, choices=seed % 2 == 0, labels=seed % 4 < 2, states=5,
            discount=(0.5, 0.9)[seed // 2 % 2], rewards=2 - (seed % 8 == 0),
        )  # fmt: skip
        eps, delta = (0.02, 0.3, 0.0)[seed % 3], (0.0, 0.05, 0.6)[seed // 3 % 3]
        d = compute(mdp)
        bounds = exact.perturbation_bound(
            d, probability=eps, reward=delta, preserve_support=preserve_support
        )
        diameter = d.values.max() + d.error
        uniform = (2 * delta + 2 * mdp.discount * eps * diameter) / (1 - mdp.discount)
        if not mdp.has_labels:
            assert bounds.max() <= uniform * (1 + 1e-12) + 1e-300
        for _ in range(3):
            other = compute(perturb(rng, mdp, eps, delta, preserve_support))
            change = np.abs(other.values - d.values)
            assert (change <= bounds + d.error + other.error).all()
            attained = max(attained, float((change / np.maximum(bounds, 1e-6)).max()))
    assert 0.9 < attained < 1.001


def test_the_pairwise_bound_is_attained() -> None:
    P = np.array([[0, 0, 0.5, 0.5], [0, 0, 0.5, 0.5], [0, 0, 1, 0], [0, 0, 0, 1]])
    mdp = MDP(P[:, None], [[0], [0], [0], [1]], discount=0.9)
    d = exact.bisimulation(mdp)
    bounds = exact.perturbation_bound(d, probability=0.1, preserve_support=True)
    moved = mdp.replace(P=np.array([[0, 0, 0.4, 0.6], [0, 0, 0.6, 0.4], P[2], P[3]]))
    assert exact.bisimulation(moved)(0, 1) == pytest.approx(2 * 0.9 * 0.1 * 10)
    assert bounds[0, 1] == pytest.approx(2 * 0.9 * 0.1 * 10, rel=1e-3)
    assert bounds[2, 3] < 1e-3


@pytest.mark.parametrize("discount", [0.5, 0.9, 0.99])
def test_the_uniform_bound_is_attained_in_the_limit(discount: float) -> None:
    mdp = MDP(np.eye(2)[:, None], [[1], [0]], discount)
    d = exact.bisimulation(mdp)
    for eps in (1e-3, 1e-5):
        leaking = mdp.replace(P=np.array([[1 - eps, eps], [eps, 1 - eps]]))
        change = d(0, 1) - exact.bisimulation(leaking, tol=1e-9)(0, 1)
        bound = exact.perturbation_bound(d, probability=eps)[0, 1]
        expected = 2 * discount * eps / (1 - discount) ** 2
        assert bound == pytest.approx(expected, rel=1e-6)
        assert change <= bound + d.error + 1e-9
        assert change >= bound / (1 + 2 * eps * discount / (1 - discount)) * (1 - 1e-3)


def test_rewards_of_labelled_models() -> None:
    # Without rewards the distance between labels is 1 / (1 - discount); any reward changes that.
    mdp = MDP(np.eye(2)[:, None], [[0], [0]], 0.5, labels=["x", ()])
    d = exact.bisimulation(mdp)
    paid = exact.bisimulation(mdp.replace(R=[[0], [0.01]]))
    assert d(0, 1) - paid(0, 1) == pytest.approx(2 - 0.02)
    bounds = exact.perturbation_bound(d, reward=0.01)
    assert bounds[0, 1] == pytest.approx(2)
    assert exact.perturbation_bound(d, probability=0.1)[0, 1] < 1e-300


def test_errors() -> None:
    mdp = worlds.load("pessimism")
    d = exact.bisimulation(mdp)
    wrong: Any
    for wrong in (-0.1, 1.5, np.nan):
        with pytest.raises(InputError, match=r"probability is .* and must be from 0 to 1"):
            exact.perturbation_bound(d, probability=wrong)
    with pytest.raises(InputError, match="reward is -1 and must be at least 0"):
        exact.perturbation_bound(d, reward=-1)
    with pytest.raises(InputError, match="distance is mico"):
        exact.perturbation_bound(exact.mico(mdp, [0, 0, 0]))
    with pytest.raises(InputError, match="gap"):
        exact.perturbation_bound(exact.bisimulation(mdp, gap=1 - np.eye(3)))
