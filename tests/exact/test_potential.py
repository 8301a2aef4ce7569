"""Functions that attain a distance: 1-Lipschitz, with a bound that an independent program meets."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from bisimetric import MDP, InputError, exact, worlds
from tests.labelled_oracle import random_mdp
from tests.oracles import transport
from tests.rationals import solve_deterministic


@pytest.mark.parametrize("kind", ["bisimulation", "on_policy"])
@pytest.mark.parametrize("labels", [False, True])
def test_attains_the_distance(kind: str, labels: bool) -> None:
    for seed in range(15):
        rng = np.random.default_rng(seed)
        mdp = random_mdp(rng, deterministic=False, labels=labels, discount=0.8)
        if kind == "bisimulation":
            d, chain = exact.bisimulation(mdp, tol=1e-9), mdp
        else:
            policy = np.array([rng.choice(np.flatnonzero(mask)) for mask in mdp.action_mask])
            d, chain = exact.on_policy(mdp, policy, tol=1e-9), mdp.apply_policy(policy)
        P = chain.P.toarray().reshape(*chain.R.shape, -1)
        for s, t in np.argwhere(~np.eye(mdp.num_states, dtype=bool)).tolist():
            same = (chain.action_mask[s] == chain.action_mask[t]).all()
            if not same or chain.label_classes[s] != chain.label_classes[t]:
                with pytest.raises(InputError, match="different labels or available actions"):
                    exact.potential(d, s, t)
                continue
            found = exact.potential(d, s, t)
            g, a = found.values, found.action
            # The triangle inequality holds up to the error.
            assert (g[:, None] - g <= d.values + 3 * d.error + 1e-12).all()
            assert found.lower_bound <= d(s, t) + d.error
            assert found.lower_bound >= d(s, t) - 5 * d.error - 1e-12
            # Another solver finds no better function for this action.
            cost = transport(d.values, P[s, a], P[t, a])
            assert P[s, a] @ g - P[t, a] @ g == pytest.approx(cost, abs=1e-9)
            f = found.sign * chain.R[:, a] + chain.discount * P[:, a] @ g
            assert f[s] - f[t] == pytest.approx(d(s, t), abs=1e-8)


def test_the_bound_is_proven_whatever_the_matrix() -> None:
    for seed in range(20):
        rng = np.random.default_rng(seed)
        n, R = rng.integers(5, size=(5, 2)), rng.integers(3, size=(5, 2)) / 7
        mdp = MDP.deterministic(n, R, discount=0.9)
        truth = solve_deterministic(mdp, "bisimulation")
        d = exact.bisimulation(mdp, dtype="float32")
        for s, t in ((0, 1), (3, 2), (1, 4)):
            assert Fraction(exact.potential(d, s, t).lower_bound) <= truth[s][t]


def test_errors() -> None:
    mdp = worlds.load("pessimism")
    with pytest.raises(InputError, match="distance is lax"):
        exact.potential(exact.lax(mdp), "s", "t")
    mixed = exact.on_policy(mdp, np.full((3, 2), 0.5))
    with pytest.raises(InputError, match="policy is stochastic"):
        exact.potential(mixed, "s", "t")
    with pytest.raises(InputError, match="choice labels"):
        exact.potential(exact.bisimulation(mdp.replace(choice_labels=["a", "a"])), "s", "t")
    with pytest.raises(InputError, match="no proven error"):
        exact.potential(exact.bisimulation(mdp, samples=10), "s", "t")
