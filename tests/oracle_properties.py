"""Proven properties of the library, checked against the oracle: one function per property.

Each takes a `Subject`, the case of a seed, and yields one sentence per violation.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import Any, Literal

import numpy as np

from bisimetric import (
    MDP,
    Distance,
    ImplicitMDP,
    NotConverged,
    Transitions,
    exact,
    planning,
    relation,
    sampled,
    uses,
)
from tests import high_precision as oracle
from tests.adversarial_mdps import Case, generate, generate_hidden_reward, generate_star
from tests.high_precision import Enclosure, closed_forms
from tests.high_precision.numbers import as_float

Kind = Literal["bisimulation", "on_policy", "lax", "mico"]
QueryKind = Literal["bisimulation", "on_policy", "lax"]
KINDS: tuple[Kind, ...] = ("bisimulation", "on_policy", "lax", "mico")
Violations = Iterator[str]


class Subject:
    """A case, its MDP in the library, and the oracle's results, each computed once."""

    def __init__(self, seed: int, **restricted: Any) -> None:
        self.seed = seed
        self.case: Case = generate(seed, **restricted)
        self.pairs: list[tuple[int, int]] | None = None
        self._references: dict[Kind, Enclosure] = {}

    @property
    def rng(self) -> np.random.Generator:
        """Random choices of a property: the same whichever properties were checked before."""
        return np.random.default_rng([self.seed, 1])

    @functools.cached_property
    def mdp(self) -> MDP:
        return library_mdp(self.case)

    @functools.cached_property
    def model(self) -> oracle.Model:
        case = self.case
        return oracle.model(case.P, case.R, case.discount, case.available)

    @functools.cached_property
    def policy(self) -> Any:
        return np.array(self.case.policy)

    def reference(self, kind: Kind) -> Enclosure:
        """The true distances."""
        if kind not in self._references:
            self._references[kind] = self._solve_reference(kind)
        return self._references[kind]

    def _solve_reference(self, kind: Kind) -> Enclosure:
        if kind == "bisimulation":
            return oracle.bisimulation(self.model)
        if kind == "lax":
            return oracle.lax(self.model)
        if kind == "on_policy":
            return oracle.on_policy(self.model, self.case.policy)
        return oracle.mico(self.model, self.case.policy)

    @functools.cached_property
    def optimal_values(self) -> Enclosure:
        return oracle.optimal_values(self.model)

    @functools.cached_property
    def policy_values(self) -> Enclosure:
        return oracle.policy_values(self.model, self.case.policy)

    def values_bounded_by(self, kind: Kind) -> Enclosure:
        """V*, or V^pi where the distance is one of a policy."""
        return self.optimal_values if kind in ("bisimulation", "lax") else self.policy_values

    def distance(self, kind: Kind, **options: Any) -> Any:
        """The library's distance; where `tol` was not proven, the partial one."""
        given = (self.policy,) if kind in ("on_policy", "mico") else ()
        solve: Any = getattr(exact, kind)
        return proven(lambda: solve(self.mdp, *given, **options))


def library_mdp(case: Case) -> MDP:
    if case.is_deterministic and case.available is None:
        successors = [[next(iter(row)) for row in rows] for rows in case.P]
        return MDP.deterministic(successors, case.R, discount=case.discount)
    available = None if case.available is None else np.array(case.available)
    return MDP(case.dense(), case.R, discount=case.discount, available=available)


def proven(compute: Callable[[], Any]) -> Any:
    """The result; where it did not converge, the partial one."""
    try:
        return compute()
    except NotConverged as stop:
        return stop.partial


def check_table(d: Any, reference: Enclosure) -> Violations:
    """Every entry lies within `error`, and every interval of `bounds` holds the true distance."""
    states = len(d.values)
    values = np.asarray(d.values, dtype=float)
    excess = {
        (s, t): reference.excess((s, t), float(values[s, t]), float(d.error))
        for s in range(states)
        for t in range(states)
    }
    worst = max(excess, key=excess.__getitem__)
    if excess[worst] > 0:
        found, true = values[worst], reference[worst]
        yield f"d{worst} = {found!r}, error {d.error!r}, true {true!r}: {excess[worst]:.3g} times"
    yield from check_bounds(d, reference)


def check_bounds(d: Any, reference: Enclosure) -> Violations:
    """Every interval of `bounds` holds the true distance."""
    ids = np.arange(d.mdp.num_states)
    low, high = d.bounds(ids[:, None], ids[None])
    for pair in itertools.product(ids.tolist(), repeat=2):
        if not (
            reference.above(pair, float(low[pair])) and reference.below(pair, float(high[pair]))
        ):
            yield f"bounds{pair} = [{low[pair]!r}, {high[pair]!r}], true {reference[pair]!r}"
            return


def check_values(V: Any, reference: Enclosure, what: str) -> Violations:
    for s, value in enumerate(V.values):
        excess = reference.excess((s,), float(value), float(V.error))
        if excess > 0:
            yield f"{what}({s}) = {value!r}, error {V.error!r}, true {reference[s]!r}: {excess:.3g}"
            return


def exceeds(units: int, radius: int, bound: float) -> bool:
    """Whether a number in units, known to `radius`, is certainly above the bound."""
    if math.isnan(bound):
        return True
    return not math.isinf(bound) and units - radius > oracle.round_to_units(bound)


def tables(subject: Subject, kind: Kind, **options: Any) -> Violations:
    yield from check_table(subject.distance(kind, **options), subject.reference(kind))


def pairs_of_mdp(subject: Subject, kind: QueryKind, **options: Any) -> Violations:
    policy = subject.policy if kind == "on_policy" else None
    pairs = _select_pairs(subject)
    result = proven(lambda: exact.query(subject.mdp, pairs, kind=kind, policy=policy, **options))
    yield from _check_query(result, subject.reference(kind))


def _select_pairs(subject: Subject) -> list[tuple[int, int]]:
    """All pairs, or one of them, from which others are reachable or not."""
    if subject.pairs is not None:
        return subject.pairs
    states = range(subject.case.num_states)
    pairs = list(itertools.product(states, states))
    rng = subject.rng
    return pairs if rng.random() < 0.4 else [pairs[int(rng.integers(len(pairs)))]]


def _check_query(answer: Any, reference: Enclosure) -> Violations:
    for pair, value in zip(answer.pairs, answer.values, strict=True):
        excess = reference.excess(tuple(pair), float(value), float(answer.error))
        if excess > 0:
            yield (
                f"d{pair} = {value!r}, error {answer.error!r}, true {reference[tuple(pair)]!r}: "
                f"{excess:.3g} times"
            )
            return


def pairs_of_successors(
    subject: Subject, kind: QueryKind, *, ranged: bool, **options: Any
) -> Violations:
    case = subject.case
    has = case.available or [[True] * case.num_actions] * case.num_states
    if case.available is not None and kind == "bisimulation" and not ranged:
        return  # The diameter bound is that of the rewards seen so far.
    rewards = [r for row, there in zip(case.R, has, strict=True) for r, h in zip(row, there) if h]  # noqa: B905
    implicit = ImplicitMDP(
        lambda s, a: (case.R[s][a], case.P[s][a]),
        actions=lambda s: [a for a in range(case.num_actions) if has[s][a]],
        discount=case.discount,
        reward_range=(min(rewards), max(rewards)) if ranged else None,
    )

    def policy(s: int) -> Any:
        choice = case.policy[s]
        if isinstance(choice, int):
            return choice
        return {a: mass for a, mass in enumerate(choice) if mass}

    pairs = _select_pairs(subject)
    chosen = policy if kind == "on_policy" else None
    result = proven(lambda: exact.query(implicit, pairs, kind=kind, policy=chosen, **options))
    yield from _check_query(result, subject.reference(kind))


def hidden_reward(subject: Subject, kind: QueryKind, *, ranged: bool) -> Violations:
    """A query that reaches a large reward by a negligible mass only."""
    hidden = Subject(subject.seed)
    hidden.case, hidden.pairs = generate_hidden_reward(subject.seed), [(0, 1)]
    yield from pairs_of_mdp(hidden, kind)
    yield from pairs_of_successors(hidden, kind, ranged=ranged)


def optimal_values(subject: Subject, **options: Any) -> Violations:
    V = proven(lambda: planning.optimal_values(subject.mdp, **options))
    yield from check_values(V, subject.optimal_values, "V*")


def policy_values(subject: Subject, **options: Any) -> Violations:
    V = proven(lambda: planning.policy_values(subject.mdp, subject.policy, **options))
    yield from check_values(V, subject.policy_values, "V^pi")


def greedy_policy(subject: Subject, tol: float = 1e-6) -> Violations:
    with contextlib.suppress(NotConverged):
        policy = planning.greedy_policy(subject.mdp, tol=tol)
        yield from _check_regret(subject, policy, subject.optimal_values, [tol] * len(policy))


def _check_regret(subject: Subject, policy: Any, best: Enclosure, bounds: Any) -> Violations:
    """The regret of the policy exceeds its bound in no state."""
    actions = [int(a) for a in policy]
    found = oracle.policy_values(subject.model, actions)
    for s, bound in enumerate(bounds):
        regret = best.centres[s,] - found.centres[s,]
        if exceeds(regret, best.radius + found.radius, float(bound)):
            yield f"state {s} has regret {as_float(regret)!r}, bound {float(bound)!r}"
            return


def relations(subject: Subject, kind: Kind) -> Violations:
    """States of one class are at distance 0, up to tolerances; those at distance 0 are in one."""
    given = (subject.policy,) if kind == "on_policy" else ()
    find: Any = getattr(relation, kind)
    labels = find(subject.mdp, *given)
    reference, slack = subject.reference(kind), _slack(subject)
    # Where all rewards are equal, states with different actions are at distance 0, too.
    separates = kind == "lax" or subject.case.available is None or subject.model.diameter() > 0
    for s in range(subject.case.num_states):
        for t in range(s):
            if labels[s] == labels[t] and reference.centres[s, t] > slack + reference.radius:
                yield f"{s} and {t} are in one class, at distance {reference[s, t]!r}"
                return
            apart = labels[s] != labels[t] and not reference.is_positive((s, t))
            if apart and separates and kind != "on_policy" and subject.case.discount >= 0.5:
                yield f"{s} and {t} are at distance 0, in different classes"
                return
    if kind == "on_policy":
        return
    small = relation.quotient(subject.mdp, labels)
    # The distances of the classes are those of their states.
    P, width = small.P.toarray(), small.num_actions
    rows = [
        [{x: float(P[c * width + a, x]) for x in P[c * width + a].nonzero()[0].tolist()}
         for a in range(width)]
        for c in range(small.num_states)
    ]  # fmt: skip
    has = None if small.available is None else small.available.tolist()
    compute = oracle.bisimulation if kind == "bisimulation" else oracle.lax
    reduced = compute(oracle.model(rows, small.R.tolist(), small.discount, has))
    for s in range(subject.case.num_states):
        for t in range(s):
            distance = reduced.centres[int(labels[s]), int(labels[t])]
            if abs(distance - reference.centres[s, t]) > slack + reference.radius + reduced.radius:
                true = reference[s, t]
                yield f"the quotient has {as_float(distance)!r} for {s} and {t}, not {true!r}"
                return


def _slack(subject: Subject) -> int:
    """Bound the effect of the tolerance 1e-13 of probabilities and of rounding R^pi and rows."""
    if subject.case.is_deterministic and isinstance(subject.case.policy[0], int):
        return 0
    rewards = [abs(r) for row in subject.model.rewards for r in row if r is not None]
    moved = subject.case.num_states**3 * Fraction(2e-13) * subject.model.diameter()
    cost = (subject.model.discount * moved + max(rewards) * Fraction(1e-14)) / (
        1 - subject.model.discount
    )
    return oracle.round_to_units(cost) + oracle.round_to_units(1e-322) * (1 << 53)


def aggregate(subject: Subject, kind: Kind, tol: float | None) -> Violations:
    d = subject.distance(kind, tol=tol)
    rng = subject.rng
    clusters = int(rng.integers(1, subject.case.num_states + 1))
    rule: Any = str(rng.choice(["incremental", "complete", "medoids"]))
    found = proven(lambda: uses.aggregate(subject.mdp, d, clusters=clusters, rule=rule))
    if not isinstance(found, uses.Aggregation):
        return  # Planning did not converge.
    V = subject.values_bounded_by(kind)
    bounds = [found.regret_bound] * len(found.policy)
    for sentence in _check_regret(subject, found.policy, V, bounds):
        yield f"{sentence} ({clusters} clusters, {rule})"
    for s, label in enumerate(found.labels):
        gap = abs(V.centres[s,] - oracle.round_to_units(float(found.values.values[label])))
        allowed = V.radius + oracle.round_to_units(min(found.values.error, 1e308))
        if exceeds(gap, allowed, found.value_bound):
            yield f"gap of {s} is {as_float(gap)!r}, bound {found.value_bound!r}"
            return


def transfer(subject: Subject, rule: Any) -> Violations:
    other = generate(subject.seed + 1_000_003, max_states=4)
    source = library_mdp(
        Case(other.P, other.R, subject.case.discount, other.available, other.policy)
    )
    with contextlib.suppress(NotConverged):
        d = None
        if source.num_actions == subject.mdp.num_actions and subject.rng.random() < 0.5:
            union = uses.disjoint_union(source, subject.mdp)
            d = proven(lambda: exact.bisimulation(union, tol=1e-3))
        found = uses.transfer(source, subject.mdp, d, rule=rule)
        yield from _check_regret(subject, found.policy, subject.optimal_values, found.regret_bound)


def compress(subject: Subject, kind: Kind) -> Violations:
    case = subject.case
    has = case.available or [[True] * case.num_actions] * case.num_states
    rng, steps = subject.rng, []
    for _ in range(12):
        s = int(rng.integers(case.num_states))
        a = int(rng.choice([a for a in range(case.num_actions) if has[s][a]]))
        steps.append((s, a, case.R[s][a], int(rng.choice(list(case.P[s][a])))))
    states, actions, rewards, successors = zip(*steps, strict=True)
    data = Transitions(
        states, actions, rewards, successors, [False] * len(steps),
        num_states=case.num_states, num_actions=case.num_actions,
    )  # fmt: skip
    with contextlib.suppress(NotConverged):
        found = uses.compress(data, subject.distance(kind), int(rng.integers(3, 8)))
        V = subject.values_bounded_by(kind)
        Q = oracle.action_values(subject.model, V) if kind == "bisimulation" else None
        for i, j in enumerate(found.representatives):
            if Q is None:
                gap, radius = V.centres[states[i],] - V.centres[states[j],], V.radius
            else:
                first, second = (states[i], actions[i]), (states[j], actions[j])
                gap, radius = Q.centres[first] - Q.centres[second], Q.radius
            if exceeds(abs(gap), 2 * radius, found.value_bound):
                yield f"step {i} for {j}: {as_float(abs(gap))!r}, bound {found.value_bound!r}"
                return


def sampled_tables(subject: Subject, kind: Kind, *, recorded: bool) -> Violations:
    """The proven intervals of sampled distances hold the true distance, whatever was sampled."""
    case, rng = subject.case, subject.rng
    source: Any = subject.mdp
    options: dict[str, Any] = {"steps": int(rng.choice([1, 30, 2000])), "seed": subject.seed}
    actions = case.actions
    if recorded:
        steps, s = [], 0
        for _ in range(int(rng.integers(1, 60))):
            a = actions[s] if kind == "on_policy" else int(rng.integers(case.num_actions))
            successor = next(iter(case.P[s][a]))
            steps.append((s, a, case.R[s][a], successor))
            s = successor if rng.random() < 0.8 else int(rng.integers(case.num_states))
        ids, taken, rewards, successors = zip(*steps, strict=True)
        source = Transitions(
            ids, taken, rewards, successors, [False] * len(steps),
            num_states=case.num_states, num_actions=case.num_actions,
        )  # fmt: skip
        options["discount"] = case.discount
    if kind == "bisimulation":
        if recorded and not _share_an_action(ids, taken):
            return  # No pair can be compared, which raises.
        d = proven(lambda: sampled.bisimulation(source, **options))
        reference = subject.reference("bisimulation")
    else:
        d = proven(lambda: sampled.on_policy(source, None if recorded else actions, **options))
        reference = oracle.on_policy(subject.model, actions)
    visited = d.coverage.visited
    for s in range(case.num_states):
        for t in range(case.num_states):
            if not (visited[s] and visited[t]):
                continue
            low, high = d.bounds(s, t)
            if not (reference.above((s, t), float(low)) and reference.below((s, t), float(high))):
                yield f"bounds({s}, {t}) = [{low!r}, {high!r}], true {reference[s, t]!r}"
                return


def _share_an_action(states: Sequence[int], actions: Sequence[int]) -> bool:
    """Whether two states took the same action."""
    taken = set(zip(states, actions, strict=True))
    return len({a for _, a in taken}) < len(taken)


def sharded(subject: Subject, kind: Kind, **options: Any) -> Violations:
    from bisimetric.exact import sharded as processes

    if kind == "bisimulation":
        d = proven(lambda: processes.bisimulation(subject.mdp, **options))
        reference = subject.reference("bisimulation")
    else:
        actions = subject.case.actions
        d = proven(lambda: processes.on_policy(subject.mdp, actions, **options))
        reference = oracle.on_policy(subject.model, actions)
    yield from check_table(d, reference)


def gpu(subject: Subject, kind: Kind, **options: Any) -> Violations:
    """The GPU kernels, compiled for the CPU."""
    from bisimetric.exact.gpu import couplings, cuda
    from tests.emulated_cuda import COMPILER, EmulatedDevice

    if COMPILER is None:
        return
    there: Any = cuda.find_device
    supports = couplings.SUPPORTS
    device = EmulatedDevice()
    if not subject.mdp.is_deterministic:
        device.max_threads = 4  # as many as there are pairs
    try:
        cuda.find_device = lambda: device  # type: ignore[assignment]
        couplings.SUPPORTS = (6,)  # compiled once
        if kind == "on_policy":
            case = subject.case
            policy: Any = case.actions if case.is_deterministic else case.policy
            d = proven(lambda: exact.on_policy(subject.mdp, policy, device="gpu", **options))
            reference = oracle.on_policy(subject.model, policy)
        else:
            solve = getattr(exact, kind)
            d = proven(lambda: solve(subject.mdp, device="gpu", **options))
            reference = subject.reference(kind)
    finally:
        cuda.find_device, couplings.SUPPORTS = there, supports
    yield from check_table(d, reference)


def asynchronous(subject: Subject, kind: QueryKind) -> Violations:
    """Bounds after some updates of random pairs, also where the iteration stops early."""
    states, rng = subject.mdp.num_states, subject.rng
    schedule: Any = rng.choice(["uniform", "round_robin", "widest"])
    updates = int(rng.integers(1, 20)) * states**2
    policy = subject.policy if kind == "on_policy" else None
    bounds = exact.asynchronous(
        subject.mdp, kind=kind, policy=policy, schedule=schedule, updates=updates
    )
    yield from check_bounds(bounds, subject.reference(kind))


def wide_rows(subject: Subject, kind: Kind, width: int, discount: float) -> Violations:
    """Rows over many absorbing states, whose distances have a closed form."""
    star = generate_star(subject.seed, width, discount)
    formula = closed_forms.star_mico if kind == "mico" else closed_forms.star_distance
    true = formula(star.first, star.second, star.rewards, star.start, star.discount)
    case = star.case()
    mdp = library_mdp(case)
    solve: Any = getattr(exact, kind)
    tol = float(subject.rng.choice([1e-6, 1e-12, 1e-15]))
    d: Distance = proven(lambda: solve(mdp, tol=tol))
    reference = Enclosure({(0, 1): oracle.round_to_units(true)}, 1)
    excess = reference.excess((0, 1), float(d.values[0, 1]), d.error)
    if excess > 0:
        value, true_value = d.values[0, 1], reference[0, 1]
        yield f"d(0, 1) = {value!r}, error {d.error!r}, true {true_value!r}: {excess:.3g}"
