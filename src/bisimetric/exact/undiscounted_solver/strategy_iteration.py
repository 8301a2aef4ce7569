"""Undiscounted distances of labelled MDPs: strategy iteration over actions and couplings.

With D_a(d)(x) the least cost of a coupling of the rows of action a, d* is the least fixed point of
max_a D_a. Its equation may have other solutions, where actions lead round in circles, so that the
two bounds have different proofs (docs/concepts/undiscounted.md):

- lower: for one selected move per pair, d* is at least the least fixed point of D_selected. That is
  the only one that is 0 on all pairs that the moves leave at 0, so that l <= D_selected(l) with
  l = 0 there implies l <= d*.
- upper: one coupling per move with sum_y f(y) u(y) <= u(x) for all moves of x implies u >= d*. To
  leave room for rounding, u is constant on end components, the sets of pairs in which actions may
  lead round in circles forever, and has a slack on all moves that leave them.

Hoffman & Karp (1966), On nonterminating stochastic games, Management Science 12(5);
Tang & van Breugel (2018), Deciding probabilistic bisimilarity distance one for probabilistic
automata, CONCUR 2018;
de Alfaro, Henzinger & Kupferman (2007), Concurrent reachability games, Theor. Comput. Sci. 386(3);
Haddad & Monmege (2018), Interval iteration algorithm for MDPs and IMDPs, Theor. Comput. Sci. 735.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import csgraph

from bisimetric._progress import show_progress
from bisimetric.exact.undiscounted_solver import game_kernels
from bisimetric.exact.undiscounted_solver.coupling_iteration import (
    MAX_ROUNDS,
    MIN_SLACK,
    SLACK_GROWTH,
    CertifiedBounds,
    CouplingIteration,
    map_kernel,
    solve_system,
)
from bisimetric.exact.undiscounted_solver.distance_one import DISTANCE_ONE, UndecidedPairs
from bisimetric.exact.undiscounted_solver.fixed_point import FixedPointRows
from bisimetric.exact.undiscounted_solver.game_kernels import Backward
from bisimetric.exact.undiscounted_solver.pair_kernels import Moves

MAX_SWEEPS = 100
"""Sweeps of value iteration that select the first moves."""
MAX_UPPER_ROUNDS = 20
"""Rounds in which couplings are improved for the upper bounds."""


def list_pairs(classes: NDArray[np.int64]) -> UndecidedPairs:
    """Number all pairs of different states of one comparison class."""
    same = classes[:, None] == classes[None, :]
    first, second = np.nonzero(np.tril(same, -1))
    return _number_pairs(len(classes), first.astype(np.int32), second.astype(np.int32))


def _number_pairs(
    states: int, first: NDArray[np.int32], second: NDArray[np.int32]
) -> UndecidedPairs:
    number = np.full((states, states), DISTANCE_ONE, np.int32)
    number[first, second] = number[second, first] = np.arange(len(first))
    return UndecidedPairs(number, first, second)


def list_moves(pairs: UndecidedPairs, action_mask: NDArray[np.bool_]) -> Moves:
    """List the available actions of each pair, whose states have the same ones."""
    pair, action = np.nonzero(action_mask[pairs.first])
    num_actions = action_mask.shape[1]
    starts = np.zeros(pairs.size + 1, np.int64)
    np.cumsum(np.bincount(pair, minlength=pairs.size), out=starts[1:])
    first_row = pairs.first[pair].astype(np.int64) * num_actions + action
    second_row = pairs.second[pair].astype(np.int64) * num_actions + action
    return Moves(first_row, second_row, pair, starts)


def find_undecided_pairs(
    rows: FixedPointRows, classes: NDArray[np.int64], action_mask: NDArray[np.bool_]
) -> UndecidedPairs:
    """Return the pairs of different states whose distance is neither 0 nor 1.

    The largest set X of pairs is computed from each of which some sequence of actions leads to
    different labels with positive probability, whatever the couplings, and never out of X. From
    its pairs labels differ with probability 1, and from no others (de Alfaro et al. 2007).
    The states must be pairwise not bisimilar.
    """
    pairs = list_pairs(classes)
    moves, backward = list_moves(pairs, action_mask), _list_predecessors(rows, action_mask)
    candidates = np.ones(pairs.size, np.bool_)
    while candidates.any():
        certain = np.zeros(pairs.size, np.bool_)
        game_kernels.grow_certain_pairs(rows, backward, pairs, moves, candidates, certain)
        if certain.sum() == candidates.sum():
            break
        candidates = certain
    left = ~candidates
    return _number_pairs(len(classes), pairs.first[left], pairs.second[left])


def _list_predecessors(rows: FixedPointRows, action_mask: NDArray[np.bool_]) -> Backward:
    """Group the transitions of available actions by successor and action."""
    states, num_actions = action_mask.shape
    row = np.repeat(np.arange(states * num_actions), np.diff(rows.row_starts))
    kept = action_mask.ravel()[row]
    group = (rows.successors.astype(np.int64) * num_actions + row % num_actions)[kept]
    order = np.argsort(group, kind="stable")
    starts = np.zeros(states * num_actions + 1, np.int64)
    np.cumsum(np.bincount(group, minlength=states * num_actions), out=starts[1:])
    ranks = np.cumsum(action_mask, axis=1) - 1
    return Backward(starts, (row[kept] // num_actions)[order], ranks, num_actions)


def solve(rows: FixedPointRows, pairs: UndecidedPairs, moves: Moves, tol: float) -> CertifiedBounds:
    """Bound the distances of undecided pairs, with upper - lower <= tol if rounding allows it."""
    if pairs.size == 0:
        return CertifiedBounds(np.empty(0), np.empty(0), 0, 0.0)
    iteration = CouplingIteration(rows, pairs, moves)
    lower, upper, steps = np.zeros(pairs.size), np.ones(pairs.size), math.inf
    with show_progress(1.0, "actions: pairs with a proven lower bound") as progress:
        _select_moves(iteration, tol)
        slack, rounds = 0.0, 0
        while rounds < MAX_ROUNDS and slack < 1:
            positive = _find_positive_pairs(iteration)
            if slack == 0:
                slack, steps = _choose_slack(iteration, positive, tol)
            iteration.values = np.maximum(iteration.evaluate(-slack, 0.0, positive), 0.0)
            iteration.values[~positive] = 0.0
            num_changed, num_unproven = iteration.improve()
            rounds += 1
            progress.set_position(1 - num_unproven / pairs.size, f"round {rounds}")
            if num_unproven == 0:
                lower = np.maximum(lower, iteration.values)
                if _improve_moves(iteration, 4 * slack) == 0:
                    upper = bound_above(iteration, slack, tol)
                    smaller, steps = _choose_slack(iteration, positive, tol)
                    if (upper - lower).max() <= tol or smaller >= slack / 2:
                        break
                    slack = smaller
            elif num_changed == 0:
                slack *= SLACK_GROWTH
    return CertifiedBounds(lower, upper, rounds, steps)


def _select_moves(iteration: CouplingIteration, tol: float) -> None:
    """Select moves by value iteration from 0, each the last one that increased a value."""
    backup = np.empty_like(iteration.values)
    for _ in range(MAX_SWEEPS):
        increase = max(
            map_kernel(
                game_kernels.back_up,
                len(backup),
                *(iteration.rows, iteration.couplings, iteration.pairs, iteration.moves),
                *(iteration.values, backup, iteration.selected),
            )
        )
        iteration.values, backup = backup, iteration.values
        if increase <= tol:
            break


def _find_positive_pairs(iteration: CouplingIteration) -> NDArray[np.bool_]:
    """Return the pairs from which the selected moves reach distance 1 whatever the couplings."""
    positive = np.zeros(len(iteration.values), np.bool_)
    num_added = 1
    while num_added:
        num_added = sum(
            map_kernel(
                game_kernels.grow_positive_pairs,
                len(positive),
                *(iteration.rows, iteration.pairs, iteration.moves, iteration.selected, positive),
            )
        )
    return positive


def _choose_slack(
    iteration: CouplingIteration, positive: NDArray[np.bool_], tol: float
) -> tuple[float, float]:
    """Return a slack with which bounds are `tol` apart, if possible, and the expected steps."""
    transition, _, leaving = iteration.build_matrix(iteration.selected)
    kept = sparse.diags_array(positive.astype(np.float64))
    system = sparse.csr_array(sparse.eye_array(len(positive)) - kept @ transition)
    cost = np.where(positive, iteration.slack[0, iteration.selected], 0.0)
    steps = float(solve_system(system, cost / np.where(positive, leaving, 1.0), 0.01).max())
    return max(MIN_SLACK, tol / 16 / max(steps, 1.0)), steps


def _improve_moves(iteration: CouplingIteration, threshold: float) -> int:
    """Select better moves, and optimal couplings of all; return how many pairs changed."""
    return sum(
        map_kernel(
            game_kernels.improve_moves,
            iteration.pairs.size,
            *(iteration.rows, iteration.couplings, iteration.pairs, iteration.moves),
            *(iteration.selected, iteration.values, iteration.slack, threshold),
        )
    )


def bound_above(iteration: CouplingIteration, slack: float, tol: float) -> NDArray[np.float64]:
    """Return proven upper bounds from the couplings of all moves; those change."""
    best = np.ones(iteration.pairs.size)
    lower, selected = iteration.values, iteration.selected
    for _ in range(MAX_UPPER_ROUNDS):
        upper = _evaluate_couplings(iteration, slack)
        if iteration.count_unproven_upper(upper) > 0:
            slack *= SLACK_GROWTH
            if slack > 1:
                break
            continue
        decrease = float((best - upper).max())
        best = np.minimum(best, upper)
        if (best - lower).max() <= tol or decrease <= tol / 100:
            break
        iteration.values = upper
        _improve_moves(iteration, math.inf)
    iteration.values, iteration.selected = lower, selected
    return best


def _evaluate_couplings(iteration: CouplingIteration, slack: float) -> NDArray[np.float64]:
    """Return the largest probability to reach distance 1 with any moves, for their couplings.

    Policy iteration over the moves that leave an end component, each with the slack per unit of
    mass.
    """
    moves, size = iteration.moves, iteration.pairs.size
    every_move = np.arange(len(moves.pair))
    shares, rewards, leaving = iteration.build_matrix(every_move)
    # Multiplying by the leaving mass again rounds; masses are multiples of 2^-53.
    masses = shares.multiply(leaving[:, None]).tocsr()
    masses.data = np.rint(masses.data * 2.0**53) / 2.0**53
    component = _find_end_components(masses, rewards, leaving, moves.pair, size)
    num_components = int(component.max()) + 1
    source = component[moves.pair]
    row = np.repeat(every_move, np.diff(masses.indptr))
    target = component[masses.indices]
    outside = target != source[row]
    shape = (len(every_move), num_components)
    moved = sparse.csr_array((masses.data[outside], (row[outside], target[outside])), shape)
    inside = np.bincount(row[~outside], masses.data[~outside], minlength=len(every_move))
    out = leaving - inside
    exits = np.flatnonzero(out > 0)
    exits = exits[np.argsort(source[exits], kind="stable")]
    owners, first = np.unique(source[exits], return_index=True)
    if len(owners) < num_components:
        return np.ones(size)
    moved = sparse.csr_array(sparse.diags_array(1 / out[exits]) @ moved[exits])
    gain = (rewards[exits] + slack * out[exits]) / out[exits]
    value = np.zeros(num_components)
    chosen: NDArray[np.int64] | None = None
    for _ in range(MAX_ROUNDS):
        every = moved @ value + gain
        largest = np.maximum.reduceat(every, first)
        # The first exit of each component that attains the maximum.
        attains = np.flatnonzero(every >= np.repeat(largest, np.diff([*first, len(exits)])))
        _, position = np.unique(source[exits[attains]], return_index=True)
        best = attains[position]
        if chosen is not None:
            is_better = largest > every[chosen] + MIN_SLACK / 16
            if not is_better.any():
                break
            best = np.where(is_better, best, chosen)
        chosen = best
        system = sparse.csr_array(sparse.eye_array(num_components) - moved[chosen])
        value = solve_system(system, gain[chosen], slack / 8)
    return np.clip(value, 0.0, 1.0)[component]


def _find_end_components(
    masses: sparse.csr_array,
    rewards: NDArray[np.float64],
    leaving: NDArray[np.float64],
    pair: NDArray[np.int64],
    size: int,
) -> NDArray[np.int64]:
    """Return the maximal end component of each pair, or a number of its own.

    Moves that may leave a strongly connected component are dropped until none does.
    """
    row = np.repeat(np.arange(len(pair)), np.diff(masses.indptr))
    # Masses are exact, and so are their sums.
    is_inner = (rewards == 0) & (np.bincount(row, masses.data, minlength=len(pair)) == leaving)
    while True:
        kept = is_inner[row]
        edges = (np.ones(int(kept.sum())), (pair[row[kept]], masses.indices[kept]))
        graph = sparse.csr_array(edges, (size, size))
        _, component = csgraph.connected_components(graph, connection="strong")
        leaves = kept & (component[pair[row]] != component[masses.indices])
        if not leaves.any():
            return np.asarray(component, np.int64)
        is_inner[row[leaves]] = False
