"""Slow loops for labelled MDPs: distances put back into their equation, relations by signatures."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bisimetric import MDP
from tests.oracles import transport

Matrix = NDArray[np.floating[Any]]
Gap = Callable[[int, int, int, int], float]


def random_mdp(
    rng: np.random.Generator,
    *,
    deterministic: bool,
    states: int = 6,
    actions: int = 3,
    discount: float = 0.7,
    labels: bool = True,
    choices: bool = False,
    rewards: int = 2,
) -> MDP:
    """Return an MDP with equal rewards, labels and rows in many states, some of them bisimilar."""
    size = (states, actions)
    if deterministic:
        P = np.eye(states)[rng.integers(states, size=size)]
    else:
        P = rng.multinomial(2, np.ones(states) / states, size=size) / 2
    available = rng.random(size) < 0.8
    available[:, 0] = True
    half = states // 2
    R = rng.integers(rewards, size=size).astype(float)
    for rows in (P, R, available):
        rows[half:] = rows[: states - half].copy()
    sets: Any = [("x",), (), ("x", "y")]
    return MDP(
        P,
        R,
        discount,
        available=available,
        labels=[sets[i] for i in rng.integers(2 + rng.integers(2), size=states)]
        if labels
        else None,
        choice_labels=[str(i) for i in rng.integers(2, size=actions)] if choices else None,
    )


def reward_gap(mdp: MDP) -> Gap:
    """Return |R(s, a) - R(t, b)|."""
    return lambda s, a, t, b: abs(float(mdp.R[s, a] - mdp.R[t, b]))


def label_set(mdp: MDP, s: int) -> frozenset[str]:
    return frozenset() if mdp.labels is None else frozenset(mdp.labels.of(s))


def group_of(mdp: MDP, a: int, lax: bool) -> Any:
    if lax:
        return 0
    return a if mdp.choice_labels is None else mdp.choice_labels[a]


def actions_of(mdp: MDP, s: int) -> list[int]:
    return [a for a in range(mdp.num_actions) if mdp.available is None or mdp.available[s, a]]


def comparable(mdp: MDP, s: int, t: int, lax: bool) -> bool:
    groups = [{group_of(mdp, a, lax) for a in actions_of(mdp, x)} for x in (s, t)]
    return label_set(mdp, s) == label_set(mdp, t) and groups[0] == groups[1]


def apply_operator(
    mdp: MDP, d: Matrix, *, lax: bool = False, gap: Gap | None = None, diameter: float | None = None
) -> Matrix:
    """Compute F(d): per choice label the Hausdorff distance of the choices; one LP per move."""
    gap = gap or reward_gap(mdp)
    states, actions = mdp.R.shape
    P = mdp.P.toarray().reshape(states, actions, states)
    out = np.zeros((states, states))
    for s in range(states):
        for t in range(s):
            if not comparable(mdp, s, t, lax):
                value = mdp.diameter_bound if diameter is None else diameter
            else:
                moves = {
                    (a, b): gap(s, a, t, b) + mdp.discount * _w1(d, P[s, a], P[t, b])
                    for a in actions_of(mdp, s)
                    for b in actions_of(mdp, t)
                    if group_of(mdp, a, lax) == group_of(mdp, b, lax)
                }
                first = [
                    min(v for (a, _), v in moves.items() if a == own) for own in actions_of(mdp, s)
                ]
                second = [
                    min(v for (_, b), v in moves.items() if b == own) for own in actions_of(mdp, t)
                ]
                value = max(first + second)
            out[s, t] = out[t, s] = value
    return out


def _w1(d: Matrix, p: Matrix, q: Matrix) -> float:
    rows, columns = p > 0, q > 0
    if rows.sum() == 1 or columns.sum() == 1:
        return float(p[rows] @ d[np.ix_(rows, columns)] @ q[columns])
    return transport(d[np.ix_(rows, columns)], p[rows], q[columns])


def apply_mico_operator(chain: MDP, U: Matrix, gap: Matrix | None = None) -> Matrix:
    """Compute F(U) of MICo for a chain."""
    P = chain.P.toarray()
    r = chain.R[:, 0]
    out = (np.abs(r[:, None] - r) if gap is None else gap) + chain.discount * P @ U @ P.T
    for s in range(len(U)):
        for t in range(len(U)):
            if label_set(chain, s) != label_set(chain, t):
                out[s, t] = chain.diameter_bound
    return np.asarray(out)


def assert_solves(d: Any, backup: Matrix, discount: float) -> None:
    """The residual of a matrix within e of the fixed point is at most (1 + discount) e."""
    residual = float(np.abs(backup - d.values).max())
    assert residual <= (1 + discount) * d.error + 1e-9 * (1 + d.values.max())


def classes_by_signatures(mdp: MDP, *, lax: bool = False) -> list[int]:
    """Refine by signatures in exact fractions until nothing splits; number by appearance."""
    states, actions = mdp.R.shape
    P = mdp.P.toarray().reshape(states, actions, states)
    classes = [0] * states
    while True:
        signatures = []
        for s in range(states):
            rows = set()
            for a in actions_of(mdp, s):
                masses: dict[int, Fraction] = {}
                for t in np.flatnonzero(P[s, a]):
                    masses[classes[t]] = masses.get(classes[t], Fraction(0)) + Fraction(P[s, a, t])
                rows.add((group_of(mdp, a, lax), mdp.R[s, a], frozenset(masses.items())))
            signatures.append((classes[s], label_set(mdp, s), frozenset(rows)))
        numbers: dict[Any, int] = {}
        refined = [numbers.setdefault(signature, len(numbers)) for signature in signatures]
        if refined == classes:
            return classes
        classes = refined
