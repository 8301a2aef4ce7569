"""d~, d^pi, d_lax and MICo as values of games on pairs of states, by strategy iteration."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from fractions import Fraction

from tests.high_precision.models import Distribution, Model, induce_chain
from tests.high_precision.numbers import (
    BITS,
    REST,
    Enclosure,
    Undecided,
    enclose,
    round_to_units,
    solve,
)
from tests.high_precision.transport import cancel_common_mass, solve_transport

ROUNDS = 12  # of both players at once, before the maximiser is held
HELD_ROUNDS = 60

Pair = tuple[int, int]


@dataclasses.dataclass(frozen=True)
class Move:
    """A reward gap in units, and the mass left to move, as shares of `total`."""

    gap: int
    send: dict[int, int]
    take: dict[int, int]
    total: int


# The maximiser takes an option, the minimiser one of its moves and a coupling.
Option = list[Move]
# Coefficients of pairs in F, in units, for the choices of both.
Coefficients = dict[Pair, int]


def on_policy(mdp: Model, policy: Sequence[int] | Sequence[Sequence[float]]) -> Enclosure:
    """d^pi(s, t) = |R^pi(s) - R^pi(t)| + discount * W1(d^pi)(P^pi(s), P^pi(t))."""
    return bisimulation(induce_chain(mdp, policy))


def bisimulation(mdp: Model) -> Enclosure:
    """d~(s, t) = max_a |R(s, a) - R(t, a)| + discount * W1(d~)(P(s, a), P(t, a)).

    States with different actions are at the range of the rewards / (1 - discount).
    """
    options: dict[Pair, list[Option]] = {}
    fixed: dict[Pair, int] = {}
    for s in mdp.states:
        for t in range(s):
            if mdp.actions(s) != mdp.actions(t):
                fixed[s, t] = round_to_units(mdp.diameter())
            else:
                options[s, t] = [[move(mdp, s, a, t, a)] for a in mdp.actions(s)]
    return _game(mdp, options, fixed)


def lax(mdp: Model) -> Enclosure:
    """The Hausdorff distance of the available actions of s and t under

    |R(s, a) - R(t, b)| + discount * W1(d_lax)(P(s, a), P(t, b)).
    """
    options: dict[Pair, list[Option]] = {}
    for s in mdp.states:
        for t in range(s):
            ours, theirs = mdp.actions(s), mdp.actions(t)
            moves = {(a, b): move(mdp, s, a, t, b) for a in ours for b in theirs}
            options[s, t] = [[moves[a, b] for b in theirs] for a in ours]
            options[s, t] += [[moves[a, b] for a in ours] for b in theirs]
    return _game(mdp, options, {})


def mico(mdp: Model, policy: Sequence[int] | Sequence[Sequence[float]]) -> Enclosure:
    """U(s, t) = |R^pi(s) - R^pi(t)| + discount * sum_xy P^pi(s)(x) P^pi(t)(y) U(x, y)."""
    chain = induce_chain(mdp, policy)
    pairs = [(s, t) for s in chain.states for t in range(s + 1)]
    number = {pair: i for i, pair in enumerate(pairs)}
    top, bottom = chain.discount.as_integer_ratio()
    gaps, weights, totals = [], [], []
    for s, t in pairs:
        p, q = chain.row(s, 0), chain.row(t, 0)
        gaps.append(round_to_units(abs(chain.reward(s, 0) - chain.reward(t, 0))))
        held: dict[int, int] = {}
        for x, mass in p.masses.items():
            for y, other in q.masses.items():
                i = number[max(x, y), min(x, y)]
                held[i] = held.get(i, 0) + mass * other
        weights.append(held)
        totals.append(p.total * q.total * bottom)
    rows = [
        {i: (mass * top << BITS) // total for i, mass in held.items()}
        for held, total in zip(weights, totals, strict=True)
    ]
    U = [0] * len(pairs)
    for _ in range(ROUNDS):
        ahead = (
            sum(mass * U[i] for i, mass in held.items()) * top // total
            for held, total in zip(weights, totals, strict=True)
        )
        gains = [gap + more - u for gap, more, u in zip(gaps, ahead, U, strict=True)]
        residual = max(map(abs, gains))
        if residual <= REST:
            return _symmetric(dict(zip(pairs, U, strict=True)), residual, chain.discount)
        U = [u + gain for u, gain in zip(U, solve(rows, gains), strict=True)]
    raise Undecided("MICo")


def move(mdp: Model, s: int, a: int, t: int, b: int) -> Move:
    p, q = mdp.row(s, a), mdp.row(t, b)
    gap = round_to_units(abs(mdp.reward(s, a) - mdp.reward(t, b)))
    return Move(gap, *cancel_common_mass(p, q), p.total * q.total)


def wasserstein(d: dict[Pair, int], p: Distribution, q: Distribution) -> Fraction:
    """W1(d)(p, q) for a metric d in units, given for s > t."""
    send, take = cancel_common_mass(p, q)
    cost, _ = solve_transport(send, take, lambda x, y: d[max(x, y), min(x, y)])
    return Fraction(cost, p.total * q.total)


def _symmetric(d: dict[Pair, int], residual: int, discount: Fraction) -> Enclosure:
    centres: dict[tuple[int, ...], int] = {}
    for (s, t), value in d.items():
        centres[s, t] = centres[t, s] = value
    return enclose(centres, residual, discount)


class _Iteration:
    """The table of a game, and what its players choose there."""

    def __init__(
        self, discount: Fraction, options: dict[Pair, list[Option]], fixed: dict[Pair, int]
    ) -> None:
        self.top, self.bottom = discount.as_integer_ratio()
        self.options = options
        self.d = dict.fromkeys(options, 0) | fixed
        self.number = {pair: i for i, pair in enumerate(options)}

    def sweep(self, held: dict[Pair, int] | None = None) -> tuple[dict[Pair, int], int]:
        """Applies F at every pair, to one option each where held: options taken, and residual."""
        worths: dict[int, tuple[int, Coefficients]] = {}
        self.gains, self.rows, taken = [], [], {}
        for pair, options in self.options.items():
            best: int | None = None
            best_coefficients = Coefficients()
            for i, option in enumerate(options):
                if held is not None and held[pair] != i:
                    continue
                for each in option:
                    if id(each) not in worths:
                        worths[id(each)] = self._evaluate_move(each)
                found, coefficients = min(
                    (worths[id(each)] for each in option), key=lambda worth: worth[0]
                )
                if best is None or found > best:
                    best, best_coefficients, taken[pair] = found, coefficients, i
            assert best is not None
            self.gains.append(best - self.d[pair])
            self.rows.append({self.number[key]: c for key, c in best_coefficients.items()})
        return taken, max(map(abs, self.gains), default=0)

    def evaluate(self) -> None:
        """Policy evaluation of the last choices, as a Newton step."""
        for pair, gain in zip(self.options, solve(self.rows, self.gains), strict=True):
            self.d[pair] += gain

    def _evaluate_move(self, each: Move) -> tuple[int, Coefficients]:
        if not each.send:
            return each.gap, {}
        cost, flow = solve_transport(
            each.send, each.take, lambda x, y: self.d[(x, y) if x > y else (y, x)]
        )
        total = each.total * self.bottom
        masses: Coefficients = {}
        for (x, y), mass in flow.items():
            key = (x, y) if x > y else (y, x)
            if key in self.number:
                masses[key] = masses.get(key, 0) + mass
        coefficients = {key: (mass * self.top << BITS) // total for key, mass in masses.items()}
        return each.gap + cost * self.top // total, coefficients


def _game(mdp: Model, options: dict[Pair, list[Option]], fixed: dict[Pair, int]) -> Enclosure:
    found = _Iteration(mdp.discount, options, fixed)
    taken, residual = found.sweep()
    for _ in range(ROUNDS):
        if residual <= REST:
            break
        found.evaluate()
        taken, residual = found.sweep()
    # Both at once may diverge: Hoffman & Karp hold the maximiser until the minimiser has converged.
    for _ in range(HELD_ROUNDS):
        if residual <= REST:
            break
        for _ in range(HELD_ROUNDS):
            _, residual = found.sweep(taken)
            if residual <= REST:
                break
            found.evaluate()
        taken, residual = found.sweep()
    if residual > REST:
        raise Undecided(f"residual {residual.bit_length()} bits")
    d = found.d | {(s, s): 0 for s in mdp.states}
    return _symmetric(d, residual, mdp.discount)
