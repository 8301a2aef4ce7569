"""Distances of a few pairs, computed from the pairs reachable from them only.

Comanici, Panangaden & Precup (2012), On-the-fly algorithms for bisimulation metrics;
Bacci, Bacci, Larsen & Mardare (2013), On-the-fly exact computation of bisimilarity distances.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Hashable, Sequence
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bisimetric._memory import fits_in_memory
from bisimetric._progress import announce_compilation, show_progress
from bisimetric._rounding import UNIT
from bisimetric.errors import InputError, InsufficientMemory
from bisimetric.exact._gap_solver import describe_gap
from bisimetric.exact._request import Request, bound_error, build_request
from bisimetric.exact.gaps import GapFunction
from bisimetric.exact.queries import pair_graph
from bisimetric.exact.queries.pair_search import PairSearch, QueryRows, decode_pairs, encode_pairs
from bisimetric.exact.queries.row_source import (
    ImplicitRowSource,
    MDPRowSource,
    build_row_source,
    extract_mdp,
)
from bisimetric.exact.stochastic import policy_iteration
from bisimetric.implicit_mdp import ImplicitMDP, PolicyFunction
from bisimetric.mdp import MDP
from bisimetric.mdp._validation import require_mdp

QueryKind = Literal["bisimulation", "on_policy", "lax"]

DEFAULT_MAX_PAIRS = 2_000_000
"""The default limit on explored pairs of an implicit MDP."""
PAIRS_PER_UPDATE = 2**18
"""Pairs that are expanded between two updates of the progress bar."""
FRONTIER_TOL_FRACTION = 0.25
"""The fraction of `tol` that truncating the search may cost."""


@dataclasses.dataclass(frozen=True, eq=False)
class QueryResult:
    """Distances of some pairs of states; `result(s, t)` takes either order.

    Attributes:
        pairs: the pairs of the query.
        values: (n,), one distance per pair, read-only, in units of reward.
        error: a proven bound on the error of every value.
        kind: "bisimulation", "on_policy" or "lax".
        source: the MDP or implicit MDP of the states.
        num_explored: how many pairs were expanded.
        metadata: method, tolerance, depth, seconds, versions.

    >>> from bisimetric import worlds
    >>> query(worlds.load("pessimism"), [("s", "t")])
    QueryResult(bisimulation, 1 pair, largest 10, error <= ..., 3 explored)
    """

    pairs: tuple[tuple[Any, Any], ...]
    values: NDArray[np.float64]
    error: float
    kind: QueryKind
    source: MDP | ImplicitMDP
    num_explored: int
    metadata: dict[str, Any] = dataclasses.field(default_factory=dict)
    _indices: dict[tuple[Hashable, Hashable], int] = dataclasses.field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.values.flags.writeable = False
        indices: dict[tuple[Hashable, Hashable], int] = {}
        for i, (s, t) in enumerate(self.pairs):
            indices[self._state_id(s), self._state_id(t)] = i
            indices[self._state_id(t), self._state_id(s)] = i
        object.__setattr__(self, "_indices", indices)

    def __call__(self, s: Any, t: Any) -> float:
        """Return the distance of a pair of the query.

        Args:
            s: a state: its id or name in an MDP, the state itself in an implicit MDP.
            t: the other state.

        Returns:
            The distance.

        Raises:
            InputError: the pair is not part of the query.
        """
        index = self._indices.get((self._state_id(s), self._state_id(t)))
        if index is None:
            raise InputError(
                f"exact.query: the pair ({s!r}, {t!r}) is not in the result; add it to pairs."
            )
        return float(self.values[index])

    def _state_id(self, state: Any) -> Hashable:
        """Return the id of a state in an MDP, else the state itself."""
        return self.source.state(state) if isinstance(self.source, MDP) else state

    def __repr__(self) -> str:
        pairs = "1 pair" if len(self.pairs) == 1 else f"{len(self.pairs)} pairs"
        return (
            f"QueryResult({self.kind}, {pairs}, largest {self.values.max():.6g}, "
            f"error <= {self.error:.2g}, {self.num_explored:,} explored)"
        )


def query(
    mdp: MDP | ImplicitMDP,
    pairs: Sequence[tuple[Any, Any]] | NDArray[Any],
    *,
    kind: QueryKind = "bisimulation",
    policy: ArrayLike | PolicyFunction | None = None,
    tol: float | None = None,
    normalised_tol: float | None = None,
    max_pairs: int | None = None,
    gap: ArrayLike | GapFunction | None = None,
) -> QueryResult:
    """Compute the distances of some pairs, each proven to `tol`, from reachable pairs only.

    The equation of a pair involves only the pairs that one step leads to, so the pairs of the
    query and all pairs reachable from them, breadth first, form a closed system. Mass that P(s, a)
    and P(t, b) have in common stays in place: W1 of a pseudometric is that of the rest.

    The search stops when no pair is left, or by the discount. No distance exceeds the diameter
    bound D = reward range / (1 - discount). Let every pair at depth k count as D / 2, and write e_j
    for the largest error that this causes among the pairs of depth at most j. A pair of depth
    j < k has successors of depth at most j + 1, and W1 is 1-Lipschitz in its ground distance, so
    e_j <= discount e_(j+1); the pairs of depth k are off by at most D / 2. Hence
    e_0 <= discount^k D / 2 at the pairs of the query. (Where labels may differ, or in d~ available
    actions, which puts states D apart, pairs of depth k count as D; then e_0 <= discount^k D.)

    Without a bound D (`ImplicitMDP` without `reward_range`) the search stops only when no pair is
    left, and no mass is small enough to be neglected, since it may lead to a large reward.

    Args:
        mdp: an MDP or an implicit MDP.
        pairs: pairs (s, t): ids or names of states in an MDP, states of an implicit MDP.
        kind: the distance: "bisimulation" (d~), "on_policy" (d^pi) or "lax" (d_lax).
        policy: for "on_policy". In an MDP (S,) actions or (S, A) probabilities, default its own.
            In an implicit MDP a function from a state to an action or to {action: probability}.
        tol: bound on the true error of every value; default 1e-6.
        normalised_tol: in place of `tol`, a bound on the error of (1 - discount) d, which does not
            grow with the horizon: for discounts near 1.
        max_pairs: limit on explored pairs; default 2,000,000 in an implicit MDP, and as many as
            fit into memory in an MDP.
        gap: immediate costs in place of |R(s, a) - R(t, b)|, as in `exact.bisimulation`,
            `on_policy` and `lax`; for an MDP. A function is evaluated for all states.

    Returns:
        The distances with their proven error.

    Raises:
        InputError: an argument has the wrong type or value, or a policy is missing.
        InsufficientMemory: more than `max_pairs` pairs are reachable, or more than fit into memory.
        NotConverged: rounding does not allow `tol`; `partial` holds the result that was proven.

    >>> walk = ImplicitMDP(lambda x, a: (float(x % 5 == 0), x + a), actions=(1, 2), discount=0.9,
    ...                    reward_range=(0, 1))
    >>> d = query(walk, [(0, 1), (0, 5)])
    >>> round(d(0, 1), 4), round(d(5, 0), 4), d.error <= 1e-6
    (6.679, 0.0, True)
    """
    request = _validate_request(kind, mdp, tol, normalised_tol, max_pairs)
    requested = _validate_pairs(pairs)
    row_source = build_row_source(kind, mdp, policy, gap)
    lax, discount = kind == "lax", row_source.discount
    s, t = np.array([[row_source.state_id(s), row_source.state_id(t)] for s, t in requested]).T
    frontier_value = math.inf
    if row_source.diameter_bound is not None:
        frontier_value = row_source.diameter_bound
        if not _may_be_incomparable(row_source, lax):
            frontier_value /= 2
    if max_pairs is None and isinstance(row_source, ImplicitRowSource):
        max_pairs = DEFAULT_MAX_PAIRS
    max_depth = _choose_depth(frontier_value, discount, FRONTIER_TOL_FRACTION * request.tol)
    limits = _SearchLimits(lax, frontier_value, discount, max_depth, max_pairs)
    _warm_up()
    search, rows = _explore(limits, row_source, np.unique(encode_pairs(s, t)[s != t]))

    diameter_bound = row_source.compute_diameter_bound()
    _require_finite_diameter(diameter_bound)
    frontier_value = min(frontier_value, diameter_bound)
    tolerance = max(
        request.tol * (1 - discount) * (0.5 if search.is_complete else FRONTIER_TOL_FRACTION),
        8 * UNIT * diameter_bound,
    )
    solve = _solve_graph if rows.max_support == 1 else _solve_couplings
    solved_pairs, solved_values, residual, largest, details = solve(
        limits, row_source, search, rows, tolerance, frontier_value
    )
    error = _bound_query_error(
        row_source, search, rows, residual, largest, diameter_bound, frontier_value
    )
    details.update(explored=search.num_expanded, depth=search.depth, complete=search.is_complete)
    values = _look_up_values(s, t, solved_pairs, solved_values, frontier_value)
    if gap is not None:
        details["gap"] = describe_gap(gap)
    metadata = request.build_metadata(details, mdp)
    result = QueryResult(requested, values, error, kind, mdp, search.num_expanded, metadata)
    request.require_tolerance(error, result)
    return result


def _may_be_incomparable(row_source: MDPRowSource | ImplicitRowSource, lax: bool) -> bool:
    """Return whether two states may be at the diameter bound by labels or available actions."""
    return row_source.labels_may_differ or (row_source.actions_may_differ and not lax)


@dataclasses.dataclass(frozen=True)
class _SearchLimits:
    """The depth and number of pairs to explore, and the value of pairs at the frontier."""

    lax: bool
    frontier_value: float
    discount: float
    max_depth: int
    max_pairs: int | None


def _explore(
    limits: _SearchLimits,
    row_source: MDPRowSource | ImplicitRowSource,
    initial_pairs: NDArray[np.int64],
) -> tuple[PairSearch, QueryRows]:
    """Explore the pairs reachable from the initial ones; return them with their rows."""
    search = PairSearch(initial_pairs)
    rows = row_source.load_rows(initial_pairs[:0], lax=limits.lax)
    with show_progress(1.0, "pairs explored") as progress:
        while not search.is_complete and search.depth < limits.max_depth:
            rows = row_source.load_rows(search.frontier, lax=limits.lax)
            depth = limits.max_depth if isinstance(row_source, MDPRowSource) else search.depth + 1
            while not search.is_complete and search.depth < depth:
                if not search.expand(
                    rows,
                    lax=limits.lax,
                    max_depth=depth,
                    max_expanded=PAIRS_PER_UPDATE,
                    capacity=limits.max_pairs,
                ):
                    _require_capacity(limits, search, rows)
                    search.grow()
                progress.set_position(
                    search.num_expanded / search.num_pairs, f"{search.num_pairs:,} pairs"
                )
    return search, rows


PairSolution = tuple[NDArray[np.int64], NDArray[np.float64], float, float, dict[str, Any]]


def _solve_graph(
    limits: _SearchLimits,
    row_source: MDPRowSource | ImplicitRowSource,
    pair_search: PairSearch,
    rows: QueryRows,
    residual_tolerance: float,
    frontier_value: float,
) -> PairSolution:
    """Solve a deterministic pair graph; return sorted pairs, values, residual, largest F(d)."""
    pairs = pair_search.pairs[: pair_search.num_expanded]
    order = np.argsort(pairs)
    s, t = decode_pairs(pairs)
    cost = np.empty((len(pairs), 0))
    if isinstance(row_source, MDPRowSource) and row_source.has_cost:
        cost = row_source.compute_costs(s, t).reshape(-1, len(pairs)).T
    values, residual, largest, details = pair_graph.solve(
        pair_search,
        rows,
        row_source.reward,
        np.ascontiguousarray(cost),
        row_source.discount,
        residual_tolerance,
        lax=limits.lax,
        frontier_value=frontier_value,
    )
    return pairs[order], values[order], residual, largest, details


def _solve_couplings(
    limits: _SearchLimits,
    row_source: MDPRowSource | ImplicitRowSource,
    pair_search: PairSearch,
    rows: QueryRows,
    residual_tolerance: float,
    frontier_value: float,
) -> PairSolution:
    """Solve pairs with several successors, except those whose labels or actions differ."""
    pairs = np.sort(pair_search.pairs[: pair_search.num_expanded])
    s, t = decode_pairs(pairs)
    comparable = rows.label_classes[s] == rows.label_classes[t]
    if not limits.lax:
        comparable &= (rows.available[s] == rows.available[t]).all(axis=1)
    pairs = pairs[comparable]
    if len(pairs) == 0:
        return pairs, np.empty(0), 0.0, 0.0, {"method": "nothing to solve"}
    reduced_mdp, pair_codes, cost = extract_mdp(row_source, rows, pairs)
    return pairs, *policy_iteration.solve_pairs(
        reduced_mdp,
        pair_codes,
        residual_tolerance,
        lax=limits.lax,
        cost=cost,
        diameter_bound=row_source.compute_diameter_bound(),
        frontier_value=frontier_value,
    )


def _bound_query_error(
    row_source: MDPRowSource | ImplicitRowSource,
    pair_search: PairSearch,
    rows: QueryRows,
    residual: float,
    largest: float,
    diameter_bound: float,
    frontier_value: float,
) -> float:
    """Bound the error of the queried pairs, from the residual of the rounded equation.

    With F the exact operator and d the fixed point of the rounded one, |d - d*| <=
    |F(d) - d| / (1 - discount), so that distances of the rounded chain, at most D, are enough here.

    - A mean reward is off by at most `reward_error`, in s and in t.
    - A mass m that is neglected, or lost to rounding, may travel anywhere and counts as
      `frontier_value` or as 0 where it should count as a distance of at most D: an error of at most
      m D. Neglected are the differences that `pair_search.negligible_mass` adds up. Rounding: a
      row of n probabilities is summed (n - 1 roundings) and divided by the sum (one), after each
      was rounded (one), so that they are off by at most (n + 1) UNIT in all, and
      2 (n + 1) <= 4 n for s and t. The solver allows for this too, but only at explored distances;
      mass that is lost to rounding may lead to others.
    - Rows that are off by `mass_error` in total variation move W1 by D times that, for s and t.
    - States with different labels or actions are `frontier_value` apart, which has three
      roundings.
    - Where the discount ended the search: see `query`. `frontier_value` has three roundings, and
      the power is one of the two floats beside the true one: less than 8 UNIT of it, except
      below the normal numbers, where the next float is above it.
    """
    discount = row_source.discount
    if row_source.actions_may_differ or row_source.labels_may_differ:
        largest = max(largest, frontier_value)
    D = max(diameter_bound, largest) * (1 + 8 * UNIT)
    lost_mass = pair_search.negligible_mass
    lost_mass += 4 * rows.max_support * UNIT if rows.max_support > 1 else 0.0
    residual += discount * lost_mass * D
    if isinstance(row_source, MDPRowSource):
        residual += row_source.bound_cost_rounding(largest)
    residual += 2 * row_source.reward_error + 2 * discount * row_source.mass_error * D
    error = bound_error(residual, largest, discount)
    if not pair_search.is_complete:
        error += math.nextafter(discount**pair_search.depth, 1.0) * frontier_value * (1 + 8 * UNIT)
    return error


def _look_up_values(
    s: NDArray[np.int64],
    t: NDArray[np.int64],
    pairs: NDArray[np.int64],
    values: NDArray[np.float64],
    frontier_value: float,
) -> NDArray[np.float64]:
    """Return the values of the pairs (s, t): 0 if s = t, else the solution or `frontier_value`."""
    encoded = encode_pairs(s, t)
    found = np.where(s == t, 0.0, frontier_value)
    index = np.searchsorted(pairs, encoded)
    solved = index < len(pairs)
    solved[solved] = pairs[index[solved]] == encoded[solved]
    found[solved] = values[index[solved]]
    return found


def _choose_depth(frontier_value: float, discount: float, tolerance: float) -> int:
    """Return the least k with discount^k * frontier_value <= tolerance, or 2^62 without any."""
    if frontier_value <= tolerance:
        return 0
    if math.isinf(frontier_value) or tolerance == 0:
        return 2**62
    if discount == 0:
        return 1
    # A quotient of the two may be too small for a float; the difference of logarithms never is.
    steps = (math.log(tolerance) - math.log(frontier_value)) / math.log(discount)
    depth = max(1, math.ceil(steps) - 1)
    while discount**depth * frontier_value > tolerance:
        depth += 1
    return depth


def _require_finite_diameter(diameter_bound: float) -> None:
    if math.isinf(diameter_bound):
        raise InputError(
            "exact.query: the range of the rewards makes distances that float64 cannot hold; "
            "scale the rewards down."
        )


def _require_capacity(limits: _SearchLimits, pair_search: PairSearch, rows: QueryRows) -> None:
    """Raise InsufficientMemory where `max_pairs` or the free memory allows no more pairs.

    All pairs of the completed depth are explored, so the remedy names a `tol` for that depth.
    """
    reached, support = pair_search.num_pairs, rows.max_support
    moves = rows.available.shape[1] ** (2 if limits.lax else 1)
    # Bytes per pair of the search, of the coupling of every move, and of the solver.
    coupling_bytes = 0 if support == 1 else moves * (16 + 2 * support) + 24 * support + 80
    needed = reached * (128.0 + 4 * moves + coupling_bytes)
    if limits.max_pairs is not None and reached >= limits.max_pairs:
        limit, other = f"max_pairs={limits.max_pairs:,}", ", or a larger max_pairs"
    elif not fits_in_memory(needed):
        limit, other = f"the free memory holds, {reached:,} pairs", ""
    else:
        return
    remedy = "pass ImplicitMDP(..., reward_range=...), so that the discount ends the search"
    if math.isfinite(limits.frontier_value):
        truncation = 1.06 * limits.discount**pair_search.depth * limits.frontier_value
        tol = truncation / FRONTIER_TOL_FRACTION
        remedy = f"pass tol={tol:.2g} or more, for which a depth of {pair_search.depth} suffices"
    raise InsufficientMemory(
        f"exact.query: the pairs reach more than {limit}, after {pair_search.depth} "
        f"steps; {remedy}{other}."
    )


def _validate_request(
    kind: QueryKind,
    mdp: Any,
    tol: float | None,
    normalised_tol: float | None,
    max_pairs: int | None,
) -> Request:
    if kind not in get_args(QueryKind):
        raise InputError(
            f"is {kind!r} and must be one of {get_args(QueryKind)}",
            caller="exact.query",
            argument="kind",
        )
    if not isinstance(mdp, ImplicitMDP):
        require_mdp("exact.query", mdp)
    if max_pairs is not None and max_pairs < 1:
        raise InputError(
            f"is {max_pairs} and must be at least 1", caller="exact.query", argument="max_pairs"
        )
    return build_request(
        kind, tol, np.float64, normalised_tol=normalised_tol, discount=mdp.discount
    )


def _validate_pairs(pairs: Any) -> tuple[tuple[Any, Any], ...]:
    requested = pairs.tolist() if isinstance(pairs, np.ndarray) else list(pairs)
    if not requested:
        raise InputError(
            "is empty and must hold one pair (s, t) or more", caller="exact.query", argument="pairs"
        )
    for i, pair in enumerate(requested):
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise InputError(f"exact.query: pairs[{i}] is {pair!r} and must be two states (s, t).")
    return tuple((s, t) for s, t in requested)


@functools.cache
def _warm_up() -> None:
    """Compile the kernels on a small query, before the progress bar of the real one."""
    source = MDPRowSource(MDP.deterministic([[1], [0]], [[0.0], [1.0]], discount=0.5))
    with announce_compilation("the kernels"):
        search, rows = _explore(_SearchLimits(True, 1.0, 0.5, 2, None), source, np.array([1 << 32]))
        cost = np.empty((search.num_expanded, 0))
        pair_graph.solve(search, rows, source.reward, cost, 0.5, 1e-6, lax=True, frontier_value=1.0)
