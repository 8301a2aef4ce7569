"""Distances of a few pairs, from no more pairs than those reach.

Comanici, Panangaden & Precup (2012), On-the-fly algorithms for bisimulation metrics;
Bacci, Bacci, Larsen & Mardare (2013), On-the-fly exact computation of bisimilarity distances.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bisimetric.errors import InputError, TableTooLarge
from bisimetric.exact import branching, table
from bisimetric.exact.queries import pair_graphs
from bisimetric.exact.queries.answers import Answer, Kind
from bisimetric.exact.queries.grounds import Asked, Known, excerpt
from bisimetric.exact.queries.reach import Ground, Reach, joined, parted
from bisimetric.exact.table import Request, proven_error
from bisimetric.mdp import MDP, induce_chain, refuse_label_actions
from bisimetric.memory import fits
from bisimetric.progress import bar, compiling
from bisimetric.rounding import UNIT
from bisimetric.successors import Policy, Successors

__all__ = ["Answer", "Kind", "answered"]

MAX_PAIRS = 2_000_000
"""Pairs that a successor function may lead to, where nothing else is asked for."""
AT_ONCE = 2**18
"""Pairs that are expanded between two looks at the bar."""
EDGE = 0.25
"""The share of `tol` that may be lost where the search ends before the pairs do."""


def answered(
    kind: Kind,
    source: MDP | Successors,
    pairs: Sequence[tuple[Any, Any]] | NDArray[Any],
    *,
    policy: ArrayLike | Policy | None = None,
    tol: float | None = None,
    max_pairs: int | None = None,
) -> Answer:
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
    request = _checked_request(kind, source, tol, max_pairs)
    wanted = request.tol
    asked = _checked_pairs(kind, pairs)
    stand = _stand(kind, source, policy)
    lax, discount = kind == "lax", stand.discount
    s, t = np.array([[stand.state(s), stand.state(t)] for s, t in asked]).T
    beyond = math.inf
    if stand.farthest is not None:
        beyond = stand.farthest if stand.may_differ and not lax else stand.farthest / 2
    search = _Search(
        kind,
        lax,
        beyond,
        discount,
        _depth_that_suffices(beyond, discount, EDGE * wanted),
        MAX_PAIRS if max_pairs is None and isinstance(stand, Asked) else max_pairs,
    )
    _compile_once()
    reach, ground = _explored(search, stand, np.unique(joined(s, t)[s != t]))

    farthest = stand.farthest_met()
    _refuse_infinite(kind, farthest)
    beyond = min(beyond, farthest)
    least = max(wanted * (1 - discount) * (0.5 if reach.complete else EDGE), 8 * UNIT * farthest)
    solve = _solved_as_graph if ground.widest == 1 else _solved_with_couplings
    inner, values, residual, largest, how = solve(search, stand, reach, ground, least, beyond)
    error = _proven(stand, reach, ground, residual, largest, farthest, beyond)
    searched = {"explored": reach.expanded, "depth": reach.depth, "complete": reach.complete}
    found = _looked_up(s, t, inner, values, beyond)
    made = request.made({**how, **searched})
    answer = Answer(asked, found, error, kind, source, reach.expanded, made)
    request.refuse_larger(error, answer)
    return answer


@dataclasses.dataclass(frozen=True)
class _Search:
    """How far to go: a depth, a number of pairs; and what counts beyond."""

    kind: Kind
    lax: bool
    beyond: float
    discount: float
    depth: int
    max_pairs: int | None


def _explored(
    search: _Search, stand: Known | Asked, first: NDArray[np.int64]
) -> tuple[Reach, Ground]:
    """The pairs that the first ones reach, and the rows that they stand on."""
    reach = Reach(first)
    ground = stand.ready(first[:0], lax=search.lax)
    with bar(1.0, "pairs explored") as shown:
        while not reach.complete and reach.depth < search.depth:
            ground = stand.ready(reach.level, lax=search.lax)
            depth = search.depth if isinstance(stand, Known) else reach.depth + 1
            while not reach.complete and reach.depth < depth:
                if not reach.expand(
                    ground, lax=search.lax, depth=depth, most=AT_ONCE, room=search.max_pairs
                ):
                    _refuse_too_many(search, reach, ground)
                    reach.grow()
                shown.at(reach.expanded / reach.reached, f"{reach.reached:,} pairs")
    return reach, ground


Solved = tuple[NDArray[np.int64], NDArray[np.float64], float, float, dict[str, Any]]


def _solved_as_graph(
    search: _Search, stand: Known | Asked, reach: Reach, ground: Ground, least: float, beyond: float
) -> Solved:
    """The expanded pairs in rising order, with their values, residual, largest value, and how."""
    pairs = reach.found[: reach.expanded]
    order = np.argsort(pairs)
    values, residual, largest, how = pair_graphs.solve(
        reach, ground, stand.reward, stand.discount, least, lax=search.lax, beyond=beyond
    )
    return pairs[order], values[order], residual, largest, how


def _solved_with_couplings(
    search: _Search, stand: Known | Asked, reach: Reach, ground: Ground, least: float, beyond: float
) -> Solved:
    """The same where pairs branch; without those that have no common move."""
    pairs = np.sort(reach.found[: reach.expanded])
    if not search.lax:
        s, t = parted(pairs)
        pairs = pairs[(ground.has[s] == ground.has[t]).all(axis=1)]
    if len(pairs) == 0:
        return pairs, np.empty(0), 0.0, 0.0, {"method": "nothing to solve"}
    small, codes = excerpt(stand, ground, pairs)
    return pairs, *branching.solve_explored(small, codes, least, lax=search.lax, beyond=beyond)


def _proven(
    stand: Known | Asked,
    reach: Reach,
    ground: Ground,
    residual: float,
    largest: float,
    farthest: float,
    beyond: float,
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
    discount = stand.discount
    if stand.may_differ:
        largest = max(largest, beyond)
    D = max(farthest, largest) * (1 + 8 * UNIT)
    aside = reach.dust + (4 * ground.widest * UNIT if ground.widest > 1 else 0.0)
    residual += discount * aside * D
    residual += 2 * stand.reward_error + 2 * discount * stand.mass_error * D
    error = proven_error(residual, largest, discount)
    if not reach.complete:
        error += math.nextafter(discount**reach.depth, 1.0) * beyond * (1 + 8 * UNIT)
    return error


def _looked_up(
    s: NDArray[np.int64],
    t: NDArray[np.int64],
    inner: NDArray[np.int64],
    values: NDArray[np.float64],
    beyond: float,
) -> NDArray[np.float64]:
    """The values of the pairs (s, t): 0 for one state, else what was found, else `beyond`."""
    codes = joined(s, t)
    found = np.where(s == t, 0.0, beyond)
    place = np.searchsorted(inner, codes)
    known = place < len(inner)
    known[known] = inner[place[known]] == codes[known]
    found[known] = values[place[known]]
    return found


def _depth_that_suffices(beyond: float, discount: float, small: float) -> int:
    """The least k with discount^k * beyond <= small; a huge number where there is none."""
    if beyond <= small:
        return 0
    if math.isinf(beyond) or small == 0:
        return 2**62
    if discount == 0:
        return 1
    # A quotient of the two may be too small for a float; the difference of logarithms never is.
    steps = (math.log(small) - math.log(beyond)) / math.log(discount)
    depth = max(1, math.ceil(steps) - 1)
    while discount**depth * beyond > small:
        depth += 1
    return depth


def _refuse_infinite(kind: Kind, farthest: float) -> None:
    if math.isinf(farthest):
        raise InputError(
            f"exact.{kind}: the range of the rewards makes distances that float64 cannot hold; "
            "scale the rewards down."
        )


def _refuse_too_many(search: _Search, reach: Reach, ground: Ground) -> None:
    """Raises if no more pairs are allowed, or if the memory holds no more.

    All pairs of the depth that is reached were found before, so it is one that suffices.
    """
    reached = reach.reached
    moves = ground.has.shape[1] ** (2 if search.lax else 1)
    # The search itself, what is known of every move, and the vectors of the solver.
    widest = ground.widest
    branching_too = 0 if widest == 1 else moves * (16 + 2 * widest) + 24 * widest + 64
    needed = reached * (128.0 + 4 * moves + branching_too)
    if search.max_pairs is not None and reached >= search.max_pairs:
        limit, other = f"max_pairs={search.max_pairs:,}", ", or a larger max_pairs"
    elif not fits(needed):
        limit, other = f"the free memory holds, {reached:,} pairs", ""
    else:
        return
    remedy = "pass Successors(..., reward_range=...), so that the discount ends the search"
    if math.isfinite(search.beyond):
        enough = 1.06 * search.discount**reach.depth * search.beyond / EDGE
        remedy = f"pass tol={enough:.2g} or more, for which a depth of {reach.depth} suffices"
    raise TableTooLarge(
        f"exact.{search.kind}: the pairs asked for reach more than {limit}, after {reach.depth} "
        f"steps; {remedy}{other}."
    )


def _stand(kind: Kind, source: MDP | Successors, policy: Any) -> Known | Asked:
    """What the search stands on: the source, or the chain that a policy makes of it."""
    if kind != "on_policy":
        if policy is not None:
            raise InputError(f"exact.{kind}: takes no policy; use exact.on_policy.")
        if not isinstance(source, MDP):
            return Asked(source)
        if kind == "lax":
            refuse_label_actions("exact.lax", source)
        return Known(source)
    if isinstance(source, Successors):
        if policy is None:
            raise InputError(
                "exact.on_policy: a successor function comes with no policy; pass one, a function "
                "from a state to an action."
            )
        return Asked(source.under(policy))
    policy = source.policy if policy is None else policy
    if policy is None:
        raise InputError("exact.on_policy: this MDP comes with no policy; pass one.")
    chain = induce_chain(source, policy)
    return Known(chain.mdp, reward_error=chain.reward_error, mass_error=chain.mass_error)


def _checked_request(kind: Kind, source: Any, tol: float | None, max_pairs: int | None) -> Request:
    if kind not in get_args(Kind):
        raise InputError(f"queries: kind is {kind!r} and must be one of {get_args(Kind)}.")
    if not isinstance(source, MDP | Successors):
        raise InputError(f"exact.{kind}: {source!r} is neither an MDP nor Successors.")
    if max_pairs is not None and max_pairs < 1:
        raise InputError(f"exact.{kind}: max_pairs is {max_pairs} and must be at least 1.")
    return table.request(kind, tol, np.float64)


def _checked_pairs(kind: str, pairs: Any) -> tuple[tuple[Any, Any], ...]:
    given = pairs.tolist() if isinstance(pairs, np.ndarray) else list(pairs)
    if not given:
        raise InputError(f"exact.{kind}: pairs is empty and must hold one pair (s, t) or more.")
    for i, pair in enumerate(given):
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise InputError(f"exact.{kind}: pairs[{i}] is {pair!r} and must be two states (s, t).")
    return tuple((s, t) for s, t in given)


@functools.cache
def _compile_once() -> None:
    """Answers a toy question, so that kernels are compiled before the bar of the real one."""
    toy = Known(MDP.deterministic([[1], [0]], [[0.0], [1.0]], discount=0.5))
    with compiling("the kernels"):
        reach, ground = _explored(_Search("lax", True, 1.0, 0.5, 2, None), toy, np.array([1 << 32]))
        pair_graphs.solve(reach, ground, toy.reward, 0.5, 1e-6, lax=True, beyond=1.0)
