"""Answer: the distances of a few pairs, with their proven error.

Distances of a few pairs, from no more pairs than those reach.

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
from bisimetric.exact import _request
from bisimetric.exact._request import Request, bound_error
from bisimetric.exact.queries import pair_graph
from bisimetric.exact.queries.pair_search import (
    PairSearch,
    TransitionRows,
    decode_pairs,
    encode_pairs,
)
from bisimetric.exact.queries.row_source import ImplicitRowSource, MDPRowSource, extract_mdp
from bisimetric.exact.stochastic import policy_iteration
from bisimetric.implicit_mdp import ImplicitMDP, PolicyFunction
from bisimetric.mdp import MDP, induce_chain, reject_label_actions

QueryKind = Literal["bisimulation", "on_policy", "lax"]


@dataclasses.dataclass(frozen=True, eq=False)
class QueryResult:
    """The distances of the pairs that were asked for; `answer(s, t)` takes either order.

    Attributes:
        pairs: as they were given.
        values: (n,), one for each pair, read-only.
        error: a proven bound on the error of every value.
        kind: "bisimulation", "on_policy" or "lax".
        source: the MDP or the successor function whose states these are.
        explored: how many pairs were looked into on the way.
        made: how it was made: method, tolerance, depth, pairs, seconds, versions.
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
        places: dict[tuple[Hashable, Hashable], int] = {}
        for i, (s, t) in enumerate(self.pairs):
            places[self._state(s), self._state(t)] = places[self._state(t), self._state(s)] = i
        object.__setattr__(self, "_indices", places)

    def __call__(self, s: Any, t: Any) -> float:
        place = self._indices.get((self._state(s), self._state(t)))
        if place is None:
            raise InputError(
                f"answer: the pair ({s!r}, {t!r}) was not asked for; ask for it with pairs=[...]."
            )
        return float(self.values[place])

    def _state(self, which: Any) -> Hashable:
        """What tells states apart: the id in an MDP, else the state itself."""
        return self.source.state(which) if isinstance(self.source, MDP) else which

    def __repr__(self) -> str:
        count = "1 pair" if len(self.pairs) == 1 else f"{len(self.pairs)} pairs"
        return (
            f"Answer({self.kind}, {count}, largest {self.values.max():.6g}, "
            f"error <= {self.error:.2g}, {self.num_explored:,} explored)"
        )


__all__ = ["QueryKind", "QueryResult", "query"]

DEFAULT_MAX_PAIRS = 2_000_000
"""Pairs that a successor function may lead to, where nothing else is asked for."""
PAIRS_PER_UPDATE = 2**18
"""Pairs that are expanded between two looks at the bar."""
FRONTIER_TOL_FRACTION = 0.25
"""The share of `tol` that may be lost where the search ends before the pairs do."""


def query(
    kind: QueryKind,
    source: MDP | ImplicitMDP,
    pairs: Sequence[tuple[Any, Any]] | NDArray[Any],
    *,
    policy: ArrayLike | PolicyFunction | None = None,
    tol: float | None = None,
    max_pairs: int | None = None,
) -> QueryResult:
    """The distances of some pairs, each proven to `tol`, without those that they never reach.

    The equation of a pair speaks only of the pairs that one step leads to, so the pairs asked for
    and all that they lead to, breadth first, form a system of their own. Mass that P(s, a) and
    P(t, b) share stays where it is and leads nowhere: W1 of a pseudometric is that of the rest.

    The search ends when nothing is left, or by the discount. No distance exceeds
    D = (largest - least reward) / (1 - discount). Let every pair at depth k count as D / 2, and
    write e_j for the largest error that this causes among the pairs of depth at most j. A pair of
    depth j < k has successors of depth at most j + 1, and W1 moves by no more than the distances
    that it is taken over, so e_j <= discount e_(j+1); the pairs of depth k are off by at most
    D / 2. Hence e_0 <= discount^k D / 2 at the pairs asked for. (Where states may differ in their
    actions, which in d~ puts them D apart, pairs of depth k count as D; then e_0 <= discount^k D.)

    Where no bound D is known (`Successors` without `reward_range`) the search ends only when
    nothing is left, and no mass is too small to be explored: a tiny one may lead to a huge reward.

    Args:
        kind: "bisimulation", "on_policy" or "lax".
        pairs: (s, t), ids or names of an MDP, states of a successor function.
        policy: for "on_policy". Of an MDP: as in `exact.on_policy`. Of a successor function: a
            function from a state to an action or to {action: probability}.
        tol: bound on the true error of every value; default 1e-6.
        max_pairs: where to give up; default 2,000,000 for a successor function, and for an MDP
            as many as the memory holds.

    >>> steps = Successors(lambda x, a: (float(x % 5 == 0), x + a), actions=(1, 2), discount=0.9,
    ...                    reward_range=(0, 1))
    >>> answer = answered("bisimulation", steps, [(0, 1), (0, 5)])
    >>> round(answer(0, 1), 4), round(answer(5, 0), 4), answer.error <= 1e-6
    (6.679, 0.0, True)
    """
    request = _validate_request(kind, source, tol, max_pairs)
    wanted = request.tol
    asked = _validate_pairs(kind, pairs)
    stand = _build_row_source(kind, source, policy)
    lax, discount = kind == "lax", stand.discount
    s, t = np.array([[stand.state_id(s), stand.state_id(t)] for s, t in asked]).T
    beyond = math.inf
    if stand.diameter_bound is not None:
        beyond = (
            stand.diameter_bound
            if stand.actions_may_differ and not lax
            else stand.diameter_bound / 2
        )
    search = _SearchLimits(
        kind,
        lax,
        beyond,
        discount,
        _choose_depth(beyond, discount, FRONTIER_TOL_FRACTION * wanted),
        DEFAULT_MAX_PAIRS
        if max_pairs is None and isinstance(stand, ImplicitRowSource)
        else max_pairs,
    )
    _warm_up()
    reach, ground = _explore(search, stand, np.unique(encode_pairs(s, t)[s != t]))

    farthest = stand.compute_diameter_bound()
    _require_finite_diameter(kind, farthest)
    beyond = min(beyond, farthest)
    least = max(
        wanted * (1 - discount) * (0.5 if reach.is_complete else FRONTIER_TOL_FRACTION),
        8 * UNIT * farthest,
    )
    solve = _solve_graph if ground.widest == 1 else _solve_couplings
    inner, values, residual, largest, how = solve(search, stand, reach, ground, least, beyond)
    error = _bound_query_error(stand, reach, ground, residual, largest, farthest, beyond)
    searched = {"explored": reach.num_expanded, "depth": reach.depth, "complete": reach.is_complete}
    found = _look_up_values(s, t, inner, values, beyond)
    made = request.build_metadata({**how, **searched})
    answer = QueryResult(asked, found, error, kind, source, reach.num_expanded, made)
    request.require_tolerance(error, answer)
    return answer


@dataclasses.dataclass(frozen=True)
class _SearchLimits:
    """How far to go: a depth, a number of pairs; and what counts beyond."""

    kind: QueryKind
    lax: bool
    frontier_value: float
    discount: float
    max_depth: int
    max_pairs: int | None


def _explore(
    limits: _SearchLimits,
    row_source: MDPRowSource | ImplicitRowSource,
    initial_pairs: NDArray[np.int64],
) -> tuple[PairSearch, TransitionRows]:
    """The pairs that the first ones reach, and the rows that they stand on."""
    reach = PairSearch(initial_pairs)
    ground = row_source.load_rows(initial_pairs[:0], lax=limits.lax)
    with show_progress(1.0, "pairs explored") as shown:
        while not reach.is_complete and reach.depth < limits.max_depth:
            ground = row_source.load_rows(reach.frontier, lax=limits.lax)
            depth = limits.max_depth if isinstance(row_source, MDPRowSource) else reach.depth + 1
            while not reach.is_complete and reach.depth < depth:
                if not reach.expand(
                    ground,
                    lax=limits.lax,
                    max_depth=depth,
                    max_expanded=PAIRS_PER_UPDATE,
                    capacity=limits.max_pairs,
                ):
                    _require_capacity(limits, reach, ground)
                    reach.grow()
                shown.set_position(
                    reach.num_expanded / reach.num_pairs, f"{reach.num_pairs:,} pairs"
                )
    return reach, ground


PairSolution = tuple[NDArray[np.int64], NDArray[np.float64], float, float, dict[str, Any]]


def _solve_graph(
    limits: _SearchLimits,
    row_source: MDPRowSource | ImplicitRowSource,
    pair_search: PairSearch,
    rows: TransitionRows,
    residual_tolerance: float,
    frontier_value: float,
) -> PairSolution:
    """The expanded pairs in rising order, with their values, residual, largest value, and how."""
    pairs = pair_search.pairs[: pair_search.num_expanded]
    order = np.argsort(pairs)
    values, residual, largest, how = pair_graph.solve(
        pair_search,
        rows,
        row_source.reward,
        row_source.discount,
        residual_tolerance,
        lax=limits.lax,
        frontier_value=frontier_value,
    )
    return pairs[order], values[order], residual, largest, how


def _solve_couplings(
    limits: _SearchLimits,
    row_source: MDPRowSource | ImplicitRowSource,
    pair_search: PairSearch,
    rows: TransitionRows,
    residual_tolerance: float,
    frontier_value: float,
) -> PairSolution:
    """The same where pairs branch; without those that have no common move."""
    pairs = np.sort(pair_search.pairs[: pair_search.num_expanded])
    if not limits.lax:
        s, t = decode_pairs(pairs)
        pairs = pairs[(rows.has[s] == rows.has[t]).all(axis=1)]
    if len(pairs) == 0:
        return pairs, np.empty(0), 0.0, 0.0, {"method": "nothing to solve"}
    small, codes = extract_mdp(row_source, rows, pairs)
    return pairs, *policy_iteration.solve_pairs(
        small, codes, residual_tolerance, lax=limits.lax, frontier_value=frontier_value
    )


def _bound_query_error(
    row_source: MDPRowSource | ImplicitRowSource,
    pair_search: PairSearch,
    rows: TransitionRows,
    residual: float,
    largest: float,
    diameter_bound: float,
    frontier_value: float,
) -> float:
    """The error of the pairs asked for, from the residual of the equation as it was rounded.

    With F the exact operator and d the fixed point of the rounded one, |d - d*| <=
    |F(d) - d| / (1 - discount), so that distances of the rounded chain, at most D, are enough here.

    - A mean reward is off by at most `reward_error`, in s and in t.
    - A mass m that is left aside, or is rounded away, may travel anywhere and counts as `beyond`
      or as nothing where it should count as a distance of at most D: that costs at most m D.
      Left aside are the differences that `reach.dust` adds up. Rounded: a row of n shares is
      summed (n - 1 roundings) and divided by the sum (one), after each share was rounded (one),
      so that its shares are off by at most (n + 1) UNIT in all, and 2 (n + 1) <= 4 n for s and t.
      The solver allows for this too, but at the distances that it explored; mass that is rounded
      away may lead to others.
    - Rows that are off by `mass_error` in total variation move W1 by D times that, for s and t.
    - States with different actions are `beyond` apart, which has three roundings.
    - Where the search was ended by the discount: see `answered`. `beyond` has three roundings, and
      the power is one of the two floats beside the true one: that is less than 8 UNIT of it, but
      below the normal numbers, where the next float is above it.
    """
    discount = row_source.discount
    if row_source.actions_may_differ:
        largest = max(largest, frontier_value)
    D = max(diameter_bound, largest) * (1 + 8 * UNIT)
    aside = pair_search.negligible_mass + (4 * rows.widest * UNIT if rows.widest > 1 else 0.0)
    residual += discount * aside * D
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
    """The values of the pairs (s, t): 0 for one state, else what was found, else `beyond`."""
    codes = encode_pairs(s, t)
    found = np.where(s == t, 0.0, frontier_value)
    place = np.searchsorted(pairs, codes)
    known = place < len(pairs)
    known[known] = pairs[place[known]] == codes[known]
    found[known] = values[place[known]]
    return found


def _choose_depth(frontier_value: float, discount: float, tolerance: float) -> int:
    """The least k with discount^k * beyond <= small; a huge number where there is none."""
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


def _require_finite_diameter(kind: QueryKind, diameter_bound: float) -> None:
    if math.isinf(diameter_bound):
        raise InputError(
            f"exact.{kind}: the range of the rewards makes distances that float64 cannot hold; "
            "scale the rewards down."
        )


def _require_capacity(limits: _SearchLimits, pair_search: PairSearch, rows: TransitionRows) -> None:
    """Raises if no more pairs are allowed, or if the memory holds no more.

    All pairs of the depth that is reached were found before, so it is one that suffices.
    """
    reached = pair_search.num_pairs
    moves = rows.has.shape[1] ** (2 if limits.lax else 1)
    # The search itself, what is known of every move, and the vectors of the solver.
    widest = rows.widest
    branching_too = 0 if widest == 1 else moves * (16 + 2 * widest) + 24 * widest + 64
    needed = reached * (128.0 + 4 * moves + branching_too)
    if limits.max_pairs is not None and reached >= limits.max_pairs:
        limit, other = f"max_pairs={limits.max_pairs:,}", ", or a larger max_pairs"
    elif not fits_in_memory(needed):
        limit, other = f"the free memory holds, {reached:,} pairs", ""
    else:
        return
    remedy = "pass Successors(..., reward_range=...), so that the discount ends the search"
    if math.isfinite(limits.frontier_value):
        enough = (
            1.06
            * limits.discount**pair_search.depth
            * limits.frontier_value
            / FRONTIER_TOL_FRACTION
        )
        remedy = f"pass tol={enough:.2g} or more, for which a depth of {pair_search.depth} suffices"
    raise InsufficientMemory(
        f"exact.{limits.kind}: the pairs asked for reach more than {limit}, after {pair_search.depth} "
        f"steps; {remedy}{other}."
    )


def _build_row_source(
    kind: QueryKind, source: MDP | ImplicitMDP, policy: Any
) -> MDPRowSource | ImplicitRowSource:
    """What the search stands on: the source, or the chain that a policy makes of it."""
    if kind != "on_policy":
        if policy is not None:
            raise InputError(f"exact.{kind}: takes no policy; use exact.on_policy.")
        if not isinstance(source, MDP):
            return ImplicitRowSource(source)
        if kind == "lax":
            reject_label_actions("exact.lax", source)
        return MDPRowSource(source)
    if isinstance(source, ImplicitMDP):
        if policy is None:
            raise InputError(
                "exact.on_policy: a successor function comes with no policy; pass one, a function "
                "from a state to an action."
            )
        return ImplicitRowSource(source.apply_policy(policy))
    policy = source.policy if policy is None else policy
    if policy is None:
        raise InputError("exact.on_policy: this MDP comes with no policy; pass one.")
    chain = induce_chain(source, policy)
    return MDPRowSource(chain.mdp, reward_error=chain.reward_error, mass_error=chain.mass_error)


def _validate_request(
    kind: QueryKind, source: Any, tol: float | None, max_pairs: int | None
) -> Request:
    if kind not in get_args(QueryKind):
        raise InputError(f"queries: kind is {kind!r} and must be one of {get_args(QueryKind)}.")
    if not isinstance(source, MDP | ImplicitMDP):
        raise InputError(f"exact.{kind}: {source!r} is neither an MDP nor Successors.")
    if max_pairs is not None and max_pairs < 1:
        raise InputError(f"exact.{kind}: max_pairs is {max_pairs} and must be at least 1.")
    return _request.build_request(kind, tol, np.float64)


def _validate_pairs(kind: str, pairs: Any) -> tuple[tuple[Any, Any], ...]:
    given = pairs.tolist() if isinstance(pairs, np.ndarray) else list(pairs)
    if not given:
        raise InputError(f"exact.{kind}: pairs is empty and must hold one pair (s, t) or more.")
    for i, pair in enumerate(given):
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise InputError(f"exact.{kind}: pairs[{i}] is {pair!r} and must be two states (s, t).")
    return tuple((s, t) for s, t in given)


@functools.cache
def _warm_up() -> None:
    """Answers a toy question, so that kernels are compiled before the bar of the real one."""
    toy = MDPRowSource(MDP.deterministic([[1], [0]], [[0.0], [1.0]], discount=0.5))
    with announce_compilation("the kernels"):
        reach, ground = _explore(
            _SearchLimits("lax", True, 1.0, 0.5, 2, None), toy, np.array([1 << 32])
        )
        pair_graph.solve(reach, ground, toy.reward, 0.5, 1e-6, lax=True, frontier_value=1.0)
