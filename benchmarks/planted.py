"""A large stochastic MDP whose coarsest bisimulation is known, as plain arrays."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

PARTS = 16
"""Probabilities are integer multiples of 1 / (2 * PARTS), so that every sum of them is exact."""


class PlantedMDP(NamedTuple):
    """Transitions P (S * A, S), rewards R (S, A), and the class (S,) of each state."""

    P: sparse.csr_array
    R: NDArray[np.float64]
    classes: NDArray[np.int64]


def plant_classes(
    states: int, classes: int, actions: int, successors: int, seed: int
) -> PlantedMDP:
    """Return an MDP with exactly `classes` bisimulation classes of two or more states.

    A small MDP is sampled first, with rewards 0 and 1 and one state per class, until no two of its
    states are lax bisimilar. Each large state copies a small one, with successors sampled from
    their classes. Every row has `successors` of them (2 or more), and in every second row of the
    small MDP the first class is reached through two members, with probabilities sampled per copy;
    so the rows of a class nearly always differ.
    """
    rng = np.random.default_rng(seed)
    while True:
        R = rng.integers(2, size=(classes, actions)).astype(np.float64)
        ahead, parts = _sample_rows(rng, classes * actions, classes, successors)
        if _all_differ(R, ahead.reshape(*R.shape, -1), parts.reshape(*R.shape, -1)):
            break
    own = rng.permutation(np.arange(states) % classes)
    members, size = np.argsort(own, kind="stable"), np.bincount(own)
    start = size.cumsum() - size

    rows = (own[:, None] * actions + np.arange(actions)).ravel()
    target, weights = ahead[rows], 2 * parts[rows]
    pick = rng.integers(size[target])
    twice = target[:, 0] == target[:, 1]
    first = target[twice, 0]
    pick[twice, 1] = (pick[twice, 0] + rng.integers(1, size[first])) % size[first]
    both = weights[twice, 0]
    share = rng.integers(1, both)
    weights[twice, 0], weights[twice, 1] = share, both - share
    P = sparse.csr_array(
        (
            weights.ravel() / (2 * PARTS),
            members[start[target] + pick].ravel(),
            np.arange(len(rows) + 1) * successors,
        ),
        shape=(len(rows), states),
    )
    P.sort_indices()
    return PlantedMDP(P, R[own], own)


def _sample_rows(
    rng: np.random.Generator, rows: int, classes: int, successors: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Sample distinct classes (rows, successors) and their weights, which sum to PARTS.

    In every second row the second class repeats the first, with weight 0.
    """
    ahead = rng.integers(classes, size=(rows, successors))
    while True:
        in_order = np.sort(ahead, axis=1)
        again = np.flatnonzero((in_order[:, 1:] == in_order[:, :-1]).any(axis=1))
        if len(again) == 0:
            break
        ahead[again] = rng.integers(classes, size=(len(again), successors))
    cuts = rng.permuted(np.tile(np.arange(1, PARTS), (rows, 1)), axis=1)[:, : successors - 1]
    ends = np.pad(np.sort(cuts, axis=1), ((0, 0), (1, 1)), constant_values=(0, PARTS))
    parts = ends[:, 1:] - ends[:, :-1]
    parts[::2, 0] += parts[::2, 1]
    parts[::2, 1], ahead[::2, 1] = 0, ahead[::2, 0]
    return ahead, parts


def _all_differ(R: NDArray[np.float64], ahead: NDArray[np.int64], parts: NDArray[np.int64]) -> bool:
    """Return whether no two states are lax bisimilar, by plain partition refinement."""
    labels, found = [0] * len(R), 1
    while True:
        number: dict[frozenset[object], int] = {}
        refined = []
        for s in range(len(R)):
            moves = set()
            for reward, successors, shares in zip(R[s], ahead[s], parts[s], strict=True):
                mass: dict[int, int] = {}
                for t, share in zip(successors.tolist(), shares.tolist(), strict=True):
                    mass[labels[t]] = mass.get(labels[t], 0) + share
                moves.add((float(reward), frozenset(mass.items())))
            refined.append(number.setdefault(frozenset(moves), len(number)))
        if len(number) in (found, len(R)):
            return len(number) == len(R)
        labels, found = refined, len(number)
