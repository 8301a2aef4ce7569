"""Undiscounted distances of labelled Markov chains in exact rational arithmetic, by slow loops."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bisimetric import MDP
from bisimetric.mdp import compute_comparison_classes
from tests.rationals import solve_transport

Row = dict[int, Fraction]
Pair = tuple[int, int]
Coupling = dict[Pair, Fraction]
"""Masses of the pairs (larger state first) that two successors form; equal states are left out."""


def normalise_rows(mdp: MDP) -> list[Row]:
    """Return the rows of P, each divided by its exact sum."""
    rows = []
    for s in range(mdp.P.shape[0]):
        part = slice(mdp.P.indptr[s], mdp.P.indptr[s + 1])
        masses = [Fraction(float(mass)) for mass in mdp.P.data[part]]
        states = mdp.P.indices[part].tolist()
        rows.append({t: mass / sum(masses) for t, mass in zip(states, masses, strict=True)})
    return rows


def find_classes(rows: list[Row], labels: list[int]) -> list[int]:
    """Return the classes of bisimilar states, by exact signatures."""
    classes = labels
    while True:
        signatures = []
        for s, row in enumerate(rows):
            masses: Row = {}
            for t, mass in row.items():
                masses[classes[t]] = masses.get(classes[t], Fraction(0)) + mass
            signatures.append((classes[s], frozenset(masses.items())))
        numbers: dict[Any, int] = {}
        refined = [numbers.setdefault(signature, len(numbers)) for signature in signatures]
        if len(set(refined)) == len(set(classes)):
            return refined
        classes = refined


def list_couplings(p: Row, q: Row) -> list[Coupling]:
    """Return the vertices of the couplings of two rows of at most three states each.

    The north-west corner rule finds those whose tree is a caterpillar, in some order of rows and
    columns, and every tree of at most six nodes is one. Common mass is not kept in place.
    """
    assert max(len(p), len(q)) <= 3
    found = []
    for sources in itertools.permutations(p):
        for targets in itertools.permutations(q):
            supply, demand = [p[x] for x in sources], [q[y] for y in targets]
            i = j = 0
            coupling: Coupling = {}
            while i < len(supply) and j < len(demand):
                mass = min(supply[i], demand[j])
                x, y = sources[i], targets[j]
                if x != y and mass:
                    pair = max(x, y), min(x, y)
                    coupling[pair] = coupling.get(pair, Fraction(0)) + mass
                supply[i] -= mass
                demand[j] -= mass
                i, j = (i, j + 1) if demand[j] == 0 and supply[i] else (i + 1, j + (demand[j] == 0))
            if coupling not in found:
                found.append(coupling)
    return found


def solve(chain: MDP) -> list[list[Fraction]]:
    """Return the undiscounted distances: policy iteration over all vertices, zeros fixed."""
    rows, labels = normalise_rows(chain), chain.label_classes.tolist()
    classes, states = find_classes(rows, labels), range(chain.num_states)
    value: dict[Pair, Fraction] = {}
    options: dict[Pair, list[Coupling]] = {}
    for s, t in itertools.combinations(states, 2):
        pair = t, s
        if labels[s] != labels[t]:
            value[pair] = Fraction(1)
        elif classes[s] == classes[t]:
            value[pair] = Fraction(0)
        else:
            options[pair] = list_couplings(rows[t], rows[s])
    chosen = {pair: every[0] for pair, every in options.items()}
    while True:
        value |= _evaluate(chosen, value)
        improved = False
        for pair, every in options.items():
            costs = [sum((f * value[y] for y, f in each.items()), Fraction(0)) for each in every]
            if min(costs) < value[pair]:
                chosen[pair], improved = every[costs.index(min(costs))], True
        if not improved:
            return [
                [Fraction(0) if s == t else value[max(s, t), min(s, t)] for t in states]
                for s in states
            ]


def solve_mdp(mdp: MDP) -> list[list[Fraction]]:
    """Return the undiscounted distances of a small MDP: the maximum over all choices of actions.

    One action per pair leaves a minimum over couplings: pairs with a coupling that stays at 0 are
    at 0, and policy iteration over all vertices computes the others. Probabilities are those
    fractions with small denominators that floats stand for. States must be pairwise not bisimilar.
    """
    rows = [
        {t: mass.limit_denominator(10**6) for t, mass in row.items()} for row in normalise_rows(mdp)
    ]
    classes, states = compute_comparison_classes(mdp).tolist(), range(mdp.num_states)
    pairs = [(s, t) for s in states for t in range(s)]
    same = [(s, t) for s, t in pairs if classes[s] == classes[t]]
    actions = [np.flatnonzero(mdp.action_mask[s]).tolist() for s in states]
    options = {
        (s, t, a): list_couplings(rows[s * mdp.num_actions + a], rows[t * mdp.num_actions + a])
        for s, t in same
        for a in actions[s]
    }
    best = {pair: Fraction(pair not in same) for pair in pairs}
    for choice in itertools.product(*(actions[s] for s, _ in same)):
        chosen = {pair: options[(*pair, a)] for pair, a in zip(same, choice, strict=True)}
        for pair, value in _minimise(chosen, set(pairs) - set(same)).items():
            best[pair] = max(best[pair], value)
    return [[Fraction(0) if s == t else best[max(s, t), min(s, t)] for t in states] for s in states]


def _minimise(options: dict[Pair, list[Coupling]], ones: set[Pair]) -> dict[Pair, Fraction]:
    """Return the least probabilities to reach `ones`, over all choices of couplings."""
    zero = set(options)
    while True:
        kept = {x for x in zero if any(set(each) <= zero for each in options[x])}
        if kept == zero:
            break
        zero = kept
    value = dict.fromkeys(ones, Fraction(1)) | dict.fromkeys(zero, Fraction(0))
    chosen = {pair: every[0] for pair, every in options.items() if pair not in zero}
    while True:
        value |= _evaluate(chosen, value)
        improved = False
        for pair in chosen:
            costs = [
                sum((f * value[y] for y, f in each.items()), Fraction(0)) for each in options[pair]
            ]
            if min(costs) < value[pair]:
                chosen[pair], improved = options[pair][costs.index(min(costs))], True
        if not improved:
            return value


def _evaluate(chosen: dict[Pair, Coupling], fixed: dict[Pair, Fraction]) -> dict[Pair, Fraction]:
    """Solve the linear system of one coupling per pair by elimination."""
    number = {pair: i for i, pair in enumerate(chosen)}
    size = len(number)
    system = [[Fraction(0)] * (size + 1) for _ in range(size)]
    for pair, i in number.items():
        system[i][i] += 1
        for successor, mass in chosen[pair].items():
            if successor in number:
                system[i][number[successor]] -= mass
            else:
                system[i][size] += mass * fixed[successor]
    for i in range(size):
        pivot = next(k for k in range(i, size) if system[k][i])
        system[i], system[pivot] = system[pivot], system[i]
        scale = system[i][i]
        system[i] = [entry / scale for entry in system[i]]
        for k in range(size):
            if k != i and system[k][i]:
                factor = system[k][i]
                system[k] = [a - factor * b for a, b in zip(system[k], system[i], strict=True)]
    return {pair: system[i][size] for pair, i in number.items()}


def iterate_from_below(mdp: MDP, sweeps: int) -> NDArray[np.float64]:
    """Return Kleene iterates from 0 in floats: they converge to the least fixed point from below.

    No distance is decided beforehand.
    """
    rows, classes = normalise_rows(mdp), compute_comparison_classes(mdp)
    n, num_actions = mdp.R.shape
    d: NDArray[np.float64] = (classes[:, None] != classes[None, :]).astype(np.float64)
    options: dict[Pair, list[NDArray[np.float64]]] = {}
    for t, s in itertools.combinations(range(n), 2):
        for a in np.flatnonzero(mdp.action_mask[s]) if classes[s] == classes[t] else ():
            couplings = list_couplings(rows[s * num_actions + a], rows[t * num_actions + a])
            masses = np.zeros((len(couplings), n, n))
            for k, coupling in enumerate(couplings):
                for y, f in coupling.items():
                    masses[k][y] = float(f)
            options.setdefault((s, t), []).append(masses.reshape(len(couplings), -1))
    for _ in range(sweeps):
        flat = d.ravel()
        new = {x: max(float((each @ flat).min()) for each in every) for x, every in options.items()}
        for (s, t), value in new.items():
            d[s, t] = d[t, s] = value
    return d


def enclose(chain: MDP, sweeps: int) -> tuple[list[list[Fraction]], list[list[Fraction]]]:
    """Return bounds on the distances of a chain by interval iteration in rationals.

    Values from 0 stay below the distance, and values from 1 above it, where bisimilar states are at
    0; both are rounded outwards to multiples of 2^-60. Every transport problem is solved exactly.
    """
    rows, labels = normalise_rows(chain), chain.label_classes.tolist()
    classes, states = find_classes(rows, labels), range(chain.num_states)
    first = {c: classes.index(c) for c in sorted(set(classes))}
    open_pairs = [
        (s, t) for s, t in itertools.combinations(first.values(), 2) if labels[s] == labels[t]
    ]
    ends = []
    for start in (0, 1):
        d = [[Fraction(labels[s] != labels[t]) for t in states] for s in states]
        for s, t in itertools.product(states, repeat=2):
            if labels[s] == labels[t] and classes[s] != classes[t]:
                d[s][t] = Fraction(start)
        for _ in range(sweeps):
            largest = Fraction(0)
            for s, t in open_pairs:
                p, q = _lump(rows[s], classes, first), _lump(rows[t], classes, first)
                send = {x: p[x] - q.get(x, 0) for x in p if p[x] > q.get(x, 0)}
                take = {y: q[y] - p.get(y, 0) for y in q if q[y] > p.get(y, 0)}
                scaled_cost = solve_transport(d, send, take) * 2**60
                value = Fraction(
                    math.ceil(scaled_cost) if start else math.floor(scaled_cost), 2**60
                )
                largest = max(largest, abs(value - d[s][t]))
                d[s][t] = d[t][s] = value
            if largest == 0:
                break
        own = [first[c] for c in classes]
        ends.append([[d[own[s]][own[t]] for t in states] for s in states])
    return ends[0], ends[1]


def _lump(row: Row, classes: list[int], first: dict[int, int]) -> Row:
    """Move the mass of each class to its first state."""
    lumped: Row = {}
    for t, mass in row.items():
        own = first[classes[t]]
        lumped[own] = lumped.get(own, Fraction(0)) + mass
    return lumped


def random_chain(
    rng: np.random.Generator, states: int, *, denominator: int = 8, leave: float | None = None
) -> MDP:
    """Return a chain with rows of at most three states, some of them equal or absorbing.

    With `leave`, some states have a self-loop that is left with that probability.
    """
    P = np.zeros((states, states))
    for s in range(states):
        kind = rng.integers(6)
        if kind == 0:
            P[s, s] = 1
        elif kind == 1 and s > 0:
            P[s] = P[rng.integers(s)]
        elif kind <= 3 and leave is not None:
            P[s, s] = 1 - leave
            P[s, rng.integers(states)] += leave
        else:
            size = min(states, 1 + int(rng.integers(3)))
            support = rng.choice(states, size=size, replace=False)
            cuts = np.sort(rng.integers(1, denominator, size=len(support) - 1))
            P[s, support] = np.diff([0, *cuts, denominator]) / denominator
    names = ["", "x", "y"]
    labels = [names[i] for i in rng.integers(2 + rng.integers(2), size=states)]
    return MDP(P[:, None], np.zeros((states, 1)), discount=0.5, labels=labels)


def random_mdp(
    rng: np.random.Generator, states: int, actions: int = 2, *, denominator: int = 4
) -> MDP:
    """Return an MDP with many deterministic moves and self-loops, so that actions may cycle."""
    P = np.zeros((states, actions, states))
    for s, a in itertools.product(range(states), range(actions)):
        size = min(states, int(rng.choice([1, 1, 2, 3])))
        support = rng.choice(states, size=size, replace=False)
        if rng.random() < 0.2:
            support[0] = s if s not in support else support[0]
        cuts = np.sort(rng.choice(np.arange(1, denominator), size=size - 1, replace=False))
        P[s, a, support] = np.diff([0, *cuts, denominator]) / denominator
    available = rng.random((states, actions)) < 0.9
    available[:, 0] = True
    labels = [("x",) if rng.random() < 0.3 else () for _ in range(states)]
    return MDP(P, np.zeros((states, actions)), discount=0.5, labels=labels, available=available)
