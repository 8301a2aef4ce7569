"""Classes under perturbed probabilities: against random perturbations and slow loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bisimetric import MDP, relation
from tests.labelled_oracle import actions_of, group_of, random_mdp


def perturb(rng: np.random.Generator, mdp: MDP, eps: float, preserve_support: bool) -> MDP:
    """Change every row at random, by less than eps in total variation."""
    P = mdp.P.toarray()
    for row in P:
        allowed = row > 0 if preserve_support else np.ones(len(row), bool)
        noise = np.where(allowed, rng.random(len(row)), 0.0)
        row[:] = (1 - eps) * row + eps * noise / noise.sum()
    return mdp.replace(P=P)


def refine(mdp: MDP, lax: bool) -> list[int]:
    """The definition: split from labels by rewards and the only class of successors, if any."""
    states, actions = mdp.R.shape
    P = mdp.P.toarray().reshape(states, actions, states)
    classes = [0] * states
    while True:
        signatures: list[Any] = []
        for s in range(states):
            rows: set[Any] = set()
            for a in actions_of(mdp, s):
                reached = {classes[t] for t in np.flatnonzero(P[s, a])}
                kind = reached.pop() if len(reached) == 1 else ("only", s)
                rows.add((group_of(mdp, a, lax), mdp.R[s, a], kind))
            labels = () if mdp.labels is None else mdp.labels.of(s)
            signatures.append((classes[s], labels, frozenset(rows)))
        numbers: dict[Any, int] = {}
        refined = [numbers.setdefault(each, len(numbers)) for each in signatures]
        if refined == classes:
            return classes
        classes = refined


@pytest.mark.parametrize("lax", [True, False])
def test_almost_every_perturbation_has_these_classes(lax: bool) -> None:
    compute = relation.lax if lax else relation.bisimulation
    kept = split = 0
    for seed in range(150):
        rng = np.random.default_rng(seed)
        mdp = random_mdp(
            rng, deterministic=seed % 3 == 0, choices=seed % 2 == 0, labels=seed % 5 == 0, rewards=1
        )
        if seed % 3 == 1:  # more rows with one successor
            P = mdp.P.toarray()
            fixed = rng.random(len(P)) < 0.7
            P[fixed] = np.eye(mdp.num_states)[P[fixed].argmax(axis=1)]
            mdp = mdp.replace(P=P)
        found = relation.robust(mdp, lax=lax)
        assert found.tolist() == refine(mdp, lax)
        assert found.tolist() == compute(perturb(rng, mdp, 1e-3, True)).tolist()
        before = compute(mdp)
        assert len(set(zip(before.tolist(), found.tolist(), strict=True))) == found.max() + 1
        kept += int(found.max() + 1 < mdp.num_states and not mdp.is_deterministic)
        split += int(found.max() > before.max())
        free = relation.robust(mdp, lax=lax, preserve_support=False)
        assert free.tolist() == compute(perturb(rng, mdp, 1e-3, False)).tolist()
    assert kept > 5
    assert split > 5


def test_deterministic_rows_into_split_classes_split() -> None:
    # 0 and 1 step to 2 and 3, which a perturbation separates.
    P = np.zeros((6, 1, 6))
    P[[0, 1], 0, [2, 3]] = 1
    P[[2, 3], 0, 4] = P[[2, 3], 0, 5] = 0.5
    P[[4, 5], 0, [4, 5]] = 1
    mdp = MDP(P, [[0], [0], [0], [0], [0], [1]], discount=0.9)
    assert relation.bisimulation(mdp).tolist() == [0, 0, 1, 1, 2, 3]
    assert relation.robust(mdp).tolist() == [0, 1, 2, 3, 4, 5]
    same = mdp.replace(R=[[0], [0], [0], [0], [1], [1]])
    assert relation.robust(same).tolist() == [0, 0, 1, 1, 2, 2]
