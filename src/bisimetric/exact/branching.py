"""Distances where pairs branch: policy iteration over actions and couplings.

Bacci, Bacci, Larsen & Mardare (2013), On-the-fly exact computation of bisimilarity distances;
Tang & van Breugel (2016), Computing probabilistic bisimilarity distances via policy iteration;
Pollatschek & Avi-Itzhak (1969), Algorithms for stochastic games with geometrical interpretation.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import linalg

from bisimetric import planning
from bisimetric.exact import couplings
from bisimetric.exact.convergence import SweepLimit
from bisimetric.exact.couplings import Memory, Model
from bisimetric.exact.table import Table
from bisimetric.exact.threads import in_parts
from bisimetric.mdp import MDP
from bisimetric.progress import bar, digits
from bisimetric.rounding import TINY, UNIT
from bisimetric.transport import Costs

PATIENCE = 8
"""Rounds that may pass without a smaller residual."""
MOST_HELD = 50
"""Rounds in which only couplings change, before actions do again."""
FIRST_REST = 16
"""Sweeps of value iteration when policy iteration goes astray for the first time."""
COARSE = 1e-3
"""The share of the residual that an evaluation may leave."""
MOST_STEPS = 200
"""Steps of the linear solver in one evaluation."""
ENOUGH_PAIRS, ENOUGH_ROWS = 256, 128
"""Pairs, and rows of a table, that are worth many threads."""


def solve(mdp: MDP, least: float, *, lax: bool = False) -> Table:
    """The table of d~ or d_lax of any MDP, to a residual of `least`.

    The table begins at |V(s) - V(t)|, a lower bound, with states numbered by V, so that the first
    couplings are optimal for it.
    """
    unit = _unit(mdp.farthest)
    mdp = mdp.replace(R=mdp.R / unit)
    V = planning.optimal_values(mdp, tol=math.inf).values
    order = np.argsort(V, kind="stable")
    model = _numbered(mdp, order, lax)
    costs = Costs(np.abs(V[order, None] - V[None, order]), np.empty(0, np.int64), len(V))
    run = _Run(model, costs, _slots_of_states(model))
    residual, largest, rounds = _iterated(run, least / unit)
    back = np.argsort(order)
    how = {"method": "policy iteration over couplings", "rounds": rounds}
    return Table(costs.table[np.ix_(back, back)] * unit, residual * unit, largest * unit, how)


def solve_explored(
    mdp: MDP, codes: NDArray[np.int64], least: float, *, lax: bool = False, beyond: float = 0.0
) -> tuple[NDArray[np.float64], float, float, dict[str, Any]]:
    """The distances of some pairs only: values, residual, largest value, and how.

    `codes` are s * S + t of the pairs, t < s, in rising order; other pairs of different states are
    taken to be `beyond` apart.
    """
    unit = _unit(max(mdp.farthest, beyond))
    mdp = mdp.replace(R=mdp.R / unit)
    model = _numbered(mdp, np.arange(mdp.num_states), lax)
    table = np.zeros((1, 1 + len(codes)))
    table[0, 0] = beyond / unit
    run = _Run(model, Costs(table, codes, mdp.num_states), _slots_of_pairs(model, codes))
    residual, largest, rounds = _iterated(run, least / unit)
    how = {"method": "policy iteration over couplings", "rounds": rounds}
    return run.costs.table[0, 1:] * unit, residual * unit, largest * unit, how


def image(
    mdp: MDP, d: NDArray[np.float64], s: NDArray[np.int64], t: NDArray[np.int64]
) -> NDArray[np.float64]:
    """F(d) of d~ at the pairs (s, t), t < s, for a table d."""
    model = _numbered(mdp, np.arange(mdp.num_states), lax=False)
    costs = Costs(d, np.empty(0, np.int64), len(d))
    pairs = zip(s.tolist(), t.tolist(), strict=True)
    return np.array([couplings.at_once(model, costs, *pair) for pair in pairs])


def _iterated(run: _Run, least: float) -> tuple[float, float, int]:
    """Rounds until |F(d) - d| is `least`; that residual, the largest F(d), the rounds.

    In each round a sweep finds the best actions and couplings of every pair; what they are worth
    for ever solves a sparse linear system. For chains this is Howard's policy iteration. With
    actions it is Newton's method for a game (Pollatschek & Avi-Itzhak), quick but able to go
    astray: after `PATIENCE` rounds without gain, actions are held until the couplings are at rest
    (Hoffman & Karp); if rounding spoils even that, sweeps of value iteration alone follow, twice as
    many each time, so that it ends; at a discount next to 1, `SweepLimit` ends it.
    """
    best, without_gain, rounds = math.inf, 0, 0
    hold, rest, resting = False, FIRST_REST, 0
    limit = SweepLimit(math.isqrt(2 * run.image.size))
    residual, largest = run.sweep()
    with bar(1.0, "couplings: digits of the error") as shown:
        while True:
            # Below the grain of F, whose sums have as many roundings as terms, nothing can fall.
            small = max(least, (8 * run.model.support + 128) * UNIT * largest)
            hopeless = limit.exceeds(rounds, residual, small)
            if residual <= small or hopeless:
                # In exact arithmetic a sweep that skips trees within their `safe` drift is as good:
                # reduced costs, sums of at most n + m costs, moved by less than their least one.
                # What float32 rounds in `safe` is far below MARGIN, and the rounding of the reduced
                # costs is in the doubt of the sweep that computed them. So this sweep is slack.
                residual, largest = run.sweep(thorough=True)
                if residual <= small or hopeless:
                    # Sums over a row, and dividing it by its sum, take a rounding a term.
                    # Below the normal numbers, where small rewards may be in this unit, a rounding
                    # is TINY / 2: of each term, and of both rewards.
                    terms = 4 * run.model.support + 8
                    rounding = terms * (UNIT * largest + TINY)
                    doubt = run.model.discount * (run.doubt + rounding) + TINY
                    return residual + doubt, largest, rounds
            rounds += 1
            without_gain = 0 if residual < best else without_gain + 1
            best = min(best, residual)
            if without_gain > PATIENCE:
                if hold:
                    resting, rest = rest, 2 * rest
                hold, without_gain = True, 0
            if resting > 0:
                resting -= 1
                run.replace(run.image)
            else:
                run.evaluate(small)
                for _ in range(MOST_HELD if hold else 0):
                    if run.sweep(held=True)[0] <= max(small, COARSE * residual):
                        break
                    run.evaluate(small)
            residual, largest = run.sweep()
            shown.at(digits(residual, small, largest), f"round {rounds}")


def memory_needed(mdp: MDP, *, lax: bool = False) -> float:
    """Bytes that `solve` takes, the table that it returns included."""
    states, actions = mdp.R.shape
    support = np.diff(mdp.P.indptr).reshape(states, actions)
    pairs = states * (states - 1) / 2
    moves = actions**2 if lax else actions
    nodes = 2 * float(support.mean())
    widest = int(support.max())
    trees = moves * nodes * np.dtype(_node_type(widest)).itemsize
    chosen = nodes * (8 + 4)
    krylov = 8 * 8
    return float(pairs * (trees + 12 * moves + chosen + krylov) + 24 * states**2 + 8 * widest**2)


class _Run:
    """The distances d, F(d), and what is known of every move."""

    def __init__(self, model: Model, costs: Costs, slots: _Slots) -> None:
        actions, pairs = model.reward.shape[1], slots.pairs
        moves = actions**2 if model.lax else actions
        self.model, self.costs = model, costs
        self.memory = Memory(
            # Nothing is known of a move: it may be worth anything for d~, as little as 0 for d_lax.
            worth=np.full(pairs * moves, 0.0 if model.lax else np.inf, np.float32),
            when=np.full(pairs * moves, -1e30 if model.lax else 0.0, np.float32),
            safe=np.full(pairs * moves, -1, np.float32),
            choice=np.zeros(pairs, np.uint32),
            trees=np.zeros(slots.size, _node_type(model.support)),
            slots=slots.starts,
            before=slots.before,
        )
        self.image = np.zeros(pairs)
        self.drift = 0.0
        self.doubt = 0.0

    def sweep(self, *, held: bool = False, thorough: bool = False) -> tuple[float, float]:
        """F(d) becomes the image; its largest difference from d, and its largest entry."""

        def part(low: int, high: int) -> tuple[float, float, float]:
            found: tuple[float, float, float] = couplings.sweep(
                self.model, self.memory, self.costs, self.image, self.drift, held, thorough,
                low, high,
            )  # fmt: skip
            return found

        parts = np.array(in_parts(part, self.image.size, ENOUGH_PAIRS))
        residual, largest, doubt = map(float, parts.max(axis=0))
        # Moves that a sweep passes over were worked out in an earlier one.
        self.doubt = max(self.doubt, doubt)
        return residual, largest

    def evaluate(self, small: float) -> None:
        """d becomes what the chosen actions and couplings are worth for ever."""
        known, pairs = (self.model, self.memory, self.costs), self.image.size
        starts = np.zeros(pairs + 1, np.int64)
        in_parts(lambda *part: couplings.count(*known, starts, *part), pairs, ENOUGH_PAIRS)
        np.cumsum(starts, out=starts)
        index = np.int32 if max(pairs, starts[-1]) < 2**31 else np.int64
        leads_to, mass, gap = np.empty(starts[-1], index), np.empty(starts[-1]), np.empty(pairs)
        into = (starts, leads_to, mass, gap)
        in_parts(lambda *part: couplings.write(*known, *into, *part), pairs, ENOUGH_PAIRS)
        ahead = sparse.csr_array((mass, leads_to, starts.astype(index)), (pairs, pairs))
        self.replace(_worth_for_ever(gap, ahead, self.model.discount, self.image, small))

    def replace(self, values: NDArray[np.float64]) -> None:
        """d becomes the given values of all pairs, which are not below 0."""
        table = self.costs.table
        np.maximum(values, 0.0, out=values)
        if self.costs.codes.size == 0:
            rows = in_parts(
                lambda *part: couplings.spread(values, table, *part), len(table), ENOUGH_ROWS
            )
            moved = float(max(rows))
        else:
            moved = float(np.abs(values - table[0, 1:]).max())
            table[0, 1:] = values
        self.drift += moved


def _worth_for_ever(
    gap: NDArray[np.float64],
    ahead: sparse.csr_array,
    discount: float,
    guess: NDArray[np.float64],
    small: float,
) -> NDArray[np.float64]:
    """x = gap + discount * ahead @ x, to a small share of what the guess leaves."""
    pairs = len(gap)

    def system(x: NDArray[Any]) -> NDArray[Any]:
        return np.asarray(x - discount * (ahead @ x))

    operator: Any = linalg.LinearOperator((pairs, pairs), matvec=system, dtype=np.float64)
    left = gap - system(guess)
    found = guess + planning.solving_step(
        operator, left, share=COARSE, steps=MOST_STEPS, small=small / 8
    )
    if np.abs(gap - system(found)).max() < np.abs(left).max():
        return found
    for _ in range(MOST_STEPS):
        guess = gap + discount * (ahead @ guess)
    return guess


def _unit(farthest: float) -> float:
    """A power of two near the largest possible distance.

    What is remembered of a move is a float32, whose range is narrow; to divide by a power of two
    rounds nothing but what falls below the normal numbers.
    """
    exponent = math.frexp(farthest)[1]
    return 1.0 if farthest == 0 else math.ldexp(1.0, max(-1000, min(1000, exponent)))


def _numbered(mdp: MDP, order: NDArray[np.int64], lax: bool) -> Model:
    """The MDP for the kernels, its states renumbered: state i is state order[i] of the MDP."""
    actions = mdp.num_actions
    rank = np.argsort(order)
    rows = (order[:, None] * actions + np.arange(actions)).ravel()
    P: Any = mdp.shares[rows]
    P = sparse.csr_array((P.data, rank[P.indices], P.indptr), P.shape)
    P.sort_indices()
    return Model(
        P.indptr.astype(np.int64),
        P.indices.astype(np.int32),
        P.data,
        mdp.R[order],
        mdp.has[order],
        mdp.discount,
        mdp.farthest,
        lax,
        int(np.diff(P.indptr).max()),
    )


class _Slots(NamedTuple):
    """Where the trees of all moves are kept; see `couplings.Memory`."""

    pairs: int
    starts: NDArray[np.int64]
    before: NDArray[np.int64]
    size: int


def _slots_of_states(model: Model) -> _Slots:
    """For all pairs: the tree of (s, t) comes after those of s with every earlier t."""
    states, actions = model.reward.shape
    support = np.diff(model.first).reshape(states, actions)
    before = np.zeros((actions, states), np.int64)
    before[:, 1:] = np.cumsum(support[:-1].T, axis=1)
    own = np.arange(states)[:, None] * support
    sizes = own[:, :, None] + before.T[:, None, :] if model.lax else own + before.T
    ends = np.cumsum(sizes)
    starts = np.concatenate([[0], ends[:-1]]).reshape(states, -1)
    return _Slots(states * (states - 1) // 2, starts, before, int(ends[-1]) + 1)


def _slots_of_pairs(model: Model, codes: NDArray[np.int64]) -> _Slots:
    """For some pairs, one after the other."""
    states, actions = model.reward.shape
    support = np.diff(model.first).reshape(states, actions)
    first, second = support[codes // states], support[codes % states]
    sizes = first[:, :, None] + second[:, None, :] if model.lax else first + second
    ends = np.cumsum(sizes)
    starts = np.concatenate([[0], ends[:-1]]).reshape(len(codes), -1)
    return _Slots(len(codes), starts, np.empty((0, 0), np.int64), int(ends[-1]) + 1)


def _node_type(support: int) -> type[np.unsignedinteger[Any]]:
    """The narrowest numbers for the nodes of a tree."""
    return np.uint8 if 2 * support < 2**8 else np.uint16 if 2 * support < 2**16 else np.uint32
