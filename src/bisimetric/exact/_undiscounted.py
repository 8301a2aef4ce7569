"""Undiscounted bisimulation distances of labelled Markov chains and MDPs, in [0, 1]."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy import sparse

from bisimetric import relation
from bisimetric._progress import announce_compilation
from bisimetric._rounding import UNIT
from bisimetric.distance import Distance
from bisimetric.errors import InputError
from bisimetric.exact._request import build_request, require_matrix_memory
from bisimetric.exact.undiscounted_solver import (
    coupling_iteration,
    distance_one,
    strategy_iteration,
)
from bisimetric.exact.undiscounted_solver.distance_one import UndecidedPairs
from bisimetric.exact.undiscounted_solver.fixed_point import FixedPointRows, round_rows
from bisimetric.exact.undiscounted_solver.pair_kernels import Moves
from bisimetric.mdp import MDP, compute_comparison_classes
from bisimetric.mdp._validation import require_mdp
from bisimetric.relation.api import RELATION_TOL, compute_classes


def undiscounted(mdp: MDP, *, tol: float | None = None, dtype: DTypeLike = "float64") -> Distance:
    """Compute the undiscounted distance of a labelled Markov chain or MDP, proven to `tol`.

    It is the least d with values in [0, 1] and

        d(s, t) = 1                                   if s and t have different labels or actions,
                  max_a W1(d)(P(s, a), P(t, a))       otherwise.

    In a chain it is the probability, under the best coupling of the two runs, that their labels
    ever differ. So it bounds the difference of the probabilities that s and t give to any event on
    the labels. It is 0 iff s and t are bisimilar.

    Distances 0 and 1 are decided first, by `relation.bisimulation` and by reachability on pairs
    (Tang & van Breugel 2018); those entries of the matrix are exactly 0 and 1, and no other entry
    is. Policy iteration over couplings and actions computes the rest, between a lower and an upper
    bound that are each proven, rounding included: couplings prove the upper one, and dual
    potentials the lower one. `error` is the largest difference of an entry from its bounds.

    The discount and the rewards of the MDP are not used: undiscounted sums of rewards have no
    bound. Label the states that rewards should tell apart.

    The distance is not continuous in P: if rounding separates two bisimilar states that recur
    forever, it increases from 0 to 1. So probabilities of classes that differ by less than 1e-13
    count as equal, as in `relation.bisimulation`, and the error refers to the quotient.
    `merged_within` in the metadata is the largest total variation distance of a state from the
    representative of its class, up to rounding. With several actions the error refers
    to probabilities in fixed point, see docs/concepts/undiscounted.md; `rounded_within` is the
    total variation of that rounding.

    Args:
        mdp: a labelled MDP; with one action, a labelled Markov chain.
        tol: bound on the true error of every entry; default 1e-6.
        dtype: of the distance matrix, float64 or float32. Without `tol`, a float32 matrix has the
            `error` that its rounding allows.

    Returns:
        The distance matrix with its proven error, from 0 to 1. `bounds(s, t)` are exact for
        distances 0 and 1. The metadata count the `undecided` pairs of classes, those at neither,
        and contain the largest expected number of steps before one of them is left.

    Raises:
        InputError: an argument has the wrong type or value, the MDP has choice labels, or all
            states have the same labels and actions.
        NotConverged: rounding does not allow `tol`; `partial` holds the distance that was proven.
        InsufficientMemory: the matrix does not fit into memory.

    Two coins of probability 0.5 and 0.6 for heads, tossed until heads:

    >>> P = [[[0.5, 0, 0.5]], [[0, 0.4, 0.6]], [[0, 0, 1]]]
    >>> d = undiscounted(MDP(P, [[0], [0], [0]], discount=0.9, labels=[(), (), "heads"]))
    >>> round(d(0, 1), 6), d(0, 2), d.error <= 1e-6
    (0.166667, 1.0, True)
    """
    require_mdp("exact.undiscounted", mdp)
    request = build_request("undiscounted", tol, dtype)
    _validate_model(mdp)
    num_states = mdp.num_states
    matrix_bytes = num_states**2 * request.dtype.itemsize
    require_matrix_memory(request.kind, num_states, matrix_bytes)
    model = mdp.replace(R=np.zeros(mdp.R.shape), policy=None)
    max_support = int(np.diff(model.P.indptr).max())
    # Above the rounding of a sum, so that different classes of the quotient are not bisimilar.
    classes = compute_classes(model, tol=max(RELATION_TOL, (4 * max_support + 32) * UNIT))
    num_classes = int(classes.max()) + 1
    merged_within = _bound_merge(model, classes)
    quotient = relation.quotient(model, classes) if num_classes < num_states else model
    # Pair numbers, and the matrix of the quotient; with actions, all comparable pairs and moves.
    work = num_classes**2 * (4.0 + request.dtype.itemsize)
    if mdp.num_actions > 1:
        sizes = np.bincount(compute_comparison_classes(quotient)).astype(np.float64)
        work += float((sizes**2).sum()) / 2 * (24 + 24 * float(quotient.action_mask.sum(1).mean()))
    require_matrix_memory(request.kind, num_states, matrix_bytes + work)
    with announce_compilation("the kernels"):
        rows, rounded_within = _round(quotient)
        pairs, moves = _decide(quotient, rows)
    work += coupling_iteration.estimate_memory(rows, moves)
    require_matrix_memory(request.kind, num_states, matrix_bytes + work)
    if mdp.num_actions == 1:
        bounds = coupling_iteration.solve(rows, pairs, moves, request.tol)
    else:
        bounds = strategy_iteration.solve(rows, pairs, moves, request.tol)
    values, error = _fill_matrix(pairs, bounds, request.dtype)
    if num_classes < num_states:
        values = values[np.ix_(classes, classes)]
    details = {
        "method": "policy iteration over couplings",
        "rounds": bounds.rounds,
        "classes": num_classes,
        "undecided": pairs.size,
        "expected_steps": bounds.expected_steps,
        "merged_within": merged_within,
        "rounded_within": rounded_within,
        "dtype": str(request.dtype),
    }
    distance = Distance(
        values, error, "undiscounted", mdp, None, request.build_metadata(details, mdp)
    )
    request.require_tolerance(error, distance)
    return distance


def _validate_model(mdp: MDP) -> None:
    """Raise InputError for choice labels and observations, and where labels and actions agree."""
    if mdp.ground_distance is not None:
        raise InputError(
            "exact.undiscounted: observations have no bounded distance here; pass "
            "mdp.replace(observations=None, ground_distance=None), and labels for what they show."
        )
    if mdp.choice_labels is not None:
        raise InputError(
            "exact.undiscounted: actions of equal choice labels cannot be compared as sets here; "
            "pass mdp.replace(choice_labels=None)."
        )
    if not compute_comparison_classes(mdp).any():
        raise InputError(
            "exact.undiscounted: all states have the same labels and actions, so that every "
            "distance is 0, and rewards do not count; pass mdp.replace(labels=...)."
        )


def _round(mdp: MDP) -> tuple[FixedPointRows, float]:
    """Return the rows in fixed point, and the part of their rounding that no bound contains.

    The bounds of a chain contain the rounding. Those of an MDP refer to the rounded rows.
    """
    if mdp.num_actions == 1:
        return round_rows(mdp), 0.0
    rows = round_rows(mdp, snap=True)
    return rows._replace(rounding=np.zeros_like(rows.rounding)), float(rows.rounding.max())


def _decide(mdp: MDP, rows: FixedPointRows) -> tuple[UndecidedPairs, Moves]:
    """Return the pairs at neither 0 nor 1, and their actions."""
    classes = compute_comparison_classes(mdp)
    if mdp.num_actions == 1:
        pairs = distance_one.find_undecided_pairs(rows, classes)
    else:
        pairs = strategy_iteration.find_undecided_pairs(rows, classes, mdp.action_mask)
    return pairs, strategy_iteration.list_moves(pairs, mdp.action_mask)


def _bound_merge(mdp: MDP, classes: NDArray[np.int64]) -> float:
    """Return the largest total variation distance of a state from its class's representative."""
    num_states, num_actions = mdp.R.shape
    row = np.repeat(np.arange(num_states * num_actions), np.diff(mdp.P.indptr))
    shape = (num_states * num_actions, int(classes.max()) + 1)
    entries = (mdp.normalised_probabilities.data, (row, classes[mdp.P.indices]))
    by_class: Any = sparse.csr_array(entries, shape)
    first = relation.representatives(classes)[classes]
    others = (first[:, None] * num_actions + np.arange(num_actions)).ravel()
    return float(abs(by_class - by_class[others]).sum(axis=1).max()) / 2


def _fill_matrix(
    pairs: UndecidedPairs, bounds: coupling_iteration.CertifiedBounds, dtype: np.dtype[Any]
) -> tuple[NDArray[np.floating], float]:
    """Return the matrix of the quotient, and the largest difference of an entry from its bounds."""
    number = pairs.number
    values = np.ones(number.shape, dtype)
    np.fill_diagonal(values, 0.0)
    if pairs.size == 0:
        return values, 0.0
    middle = (bounds.lower + (bounds.upper - bounds.lower) / 2).astype(dtype)
    # Only decided distances are 0 or 1.
    limits = np.finfo(dtype)
    middle = np.clip(middle, limits.tiny, 1 - limits.epsneg)
    values[pairs.first, pairs.second] = values[pairs.second, pairs.first] = middle
    wide = middle.astype(np.float64)
    error = float(max((bounds.upper - wide).max(), (wide - bounds.lower).max()))
    # A difference of numbers in [0, 1] has one rounding.
    return values, error * (1 + 4 * UNIT)
