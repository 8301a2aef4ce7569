"""Measure the definitions, theorems and small examples of Castro (2020) on random MDPs.

Each function takes a number of MDPs or runs, with seeds 0, 1, ..., and returns an `Outcome`. Small
MDPs are compared with SciPy's linear programme, which shares no code with the solvers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import optimize

from bisimetric import exact, planning, relation, worlds
from bisimetric.mdp import MDP

Verdict = Literal["holds", "differs", "does not hold", "as stated", "not tested"]
TOL = 1e-7
ROUNDING = 1e-6
"""What counts as equal: the tolerances of the solvers and of the linear programme."""


class Outcome(NamedTuple):
    """The result of checking one claim.

    Attributes:
        verdict: whether it holds, differs, or does not hold.
        text: the measured numbers in a sentence.
        runs: how many MDPs, seeds or clusterings it is from.
    """

    verdict: Verdict
    text: str
    runs: str


def judge(condition: bool, otherwise: Verdict = "does not hold") -> Verdict:
    """Return "holds" if a condition is true.

    >>> judge(True), judge(False, "differs")
    ('holds', 'differs')
    """
    return "holds" if condition else otherwise


def format_small(value: float) -> str:
    """Return an upper bound in few digits; the tolerance of the comparison where it is smaller.

    >>> format_small(1e-9), format_small(0.01234)
    ('1e-06', '0.0123')
    """
    return f"{max(value, ROUNDING):.3g}"


def sample_mdps(count: int, *, stochastic: bool = False) -> Iterator[MDP]:
    """Yield random MDPs of 2 to 6 states with rewards of 0, 0.5 and 1; some have equal states.

    Args:
        count: how many.
        stochastic: whether successors are random.

    Yields:
        MDPs, with discount 0.5 or 0.9.

    >>> [mdp.num_states for mdp in sample_mdps(3)]
    [6, 4, 6]
    """
    for seed in range(count):
        rng = np.random.default_rng(seed)
        states, actions = int(rng.integers(2, 7)), int(rng.integers(1, 4))
        R = rng.choice([0.0, 0.5, 1.0], (states, actions))
        P = np.zeros((states, actions, states))
        for row in P.reshape(-1, states):
            successors = rng.integers(states, size=2 if stochastic else 1)
            np.add.at(row, successors, 1 / len(successors))
        if rng.random() < 0.7:
            P[-1], R[-1] = P[0], R[0]
        yield MDP(P, R, discount=float(rng.choice([0.5, 0.9])))


def sample_policy(mdp: MDP, seed: int) -> NDArray[np.float64]:
    """Return a random stochastic policy (S, A) in eighths, equal in the first and last state."""
    rng, actions = np.random.default_rng(seed), mdp.num_actions
    policy = rng.multinomial(8, np.full(actions, 1 / actions), mdp.num_states) / 8
    policy[-1] = policy[0]
    return policy


def _dense(mdp: MDP) -> NDArray[np.float64]:
    """Return the probabilities (S, A, S)."""
    rows = mdp.normalised_probabilities
    flat = rows.toarray() if hasattr(rows, "toarray") else np.asarray(rows)
    return np.asarray(flat).reshape(mdp.num_states, mdp.num_actions, mdp.num_states)


def solve_transport(d: NDArray[np.floating], x: Any, y: Any, *, bounded: bool = False) -> float:
    """Return W1 of two distributions by the programme of equation 1 of Castro (2020).

    max sum_s (x(s) - y(s)) u(s) subject to u(s) - u(t) <= d(s, t), and 0 <= u, u <= 1 as printed
    if `bounded`.

    Args:
        d: (S, S), the ground distance.
        x: (S,), probabilities.
        y: (S,), probabilities.
        bounded: whether u is at most 1.

    Returns:
        The optimum.

    >>> d = np.array([[0.0, 5.0], [5.0, 0.0]])
    >>> solve_transport(d, [1.0, 0.0], [0.0, 1.0]), solve_transport(d, [1, 0], [0, 1], bounded=True)
    (5.0, 1.0)
    """
    n = len(d)
    s, t = np.nonzero(~np.eye(n, dtype=bool))
    A = np.zeros((len(s), n))
    A[np.arange(len(s)), s], A[np.arange(len(s)), t] = 1.0, -1.0
    found = optimize.linprog(
        np.asarray(y, float) - np.asarray(x, float),
        A_ub=A if len(s) else None,
        b_ub=d[s, t] if len(s) else None,
        bounds=(0, 1 if bounded else None),
    )
    return -float(found.fun or 0.0)


def _apply_operator(mdp: MDP, d: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return F(d) of theorem 1, by linear programmes."""
    P, n = _dense(mdp), mdp.num_states
    after = np.zeros((n, n))
    for s in range(n):
        for t in range(s):
            after[s, t] = after[t, s] = max(
                abs(mdp.R[s, a] - mdp.R[t, a]) + mdp.discount * solve_transport(d, P[s, a], P[t, a])
                for a in range(mdp.num_actions)
            )
    return after


def _sweep(mdp: MDP, d: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return F(d) of a deterministic MDP."""
    following = np.stack([d[np.ix_(n, n)] for n in mdp.next_state.T])
    gaps = np.abs(mdp.R[:, None] - mdp.R[None, :]).transpose(2, 0, 1)
    return np.asarray((gaps + mdp.discount * following).max(axis=0))


def _build_relation(classes: NDArray[np.int64]) -> NDArray[np.bool_]:
    return np.asarray(classes[:, None] == classes[None, :])


def _gaps(values: Any) -> NDArray[np.float64]:
    return np.asarray(np.abs(np.subtract.outer(values, values)))


def count_steps_to_goal(mdp: MDP) -> NDArray[np.int64]:
    """Return the smallest number of steps from each state to one whose entry has a reward of 1.

    Args:
        mdp: a deterministic grid.

    Returns:
        (S,), 0 for the goals.

    >>> count_steps_to_goal(worlds.load("mirrored-rooms"))[:5].tolist()
    [4, 3, 2, 1, 0]
    """
    successors = np.asarray(mdp.next_state)
    steps = np.full(mdp.num_states, mdp.num_states, np.int64)
    steps[np.unique(successors[np.asarray(mdp.R) == 1])] = 0
    for _ in range(mdp.num_states):
        steps = np.minimum(steps, 1 + steps[successors].min(axis=1))
    return steps


def check_relation(count: int) -> Outcome:
    """Definition 1: the relation's conditions, and equal optimal values of bisimilar states."""
    pairs, violations, largest = 0, 0, 0.0
    for mdp in sample_mdps(count, stochastic=True):
        classes = relation.bisimulation(mdp)
        P = _dense(mdp) @ (classes[:, None] == np.arange(classes.max() + 1))
        related = _build_relation(classes) & ~np.eye(mdp.num_states, dtype=bool)
        equal = np.isclose(P[:, None], P[None, :], atol=1e-9).all(axis=(2, 3))
        equal &= (mdp.R[:, None] == mdp.R[None, :]).all(axis=2)
        violations += int((related & ~equal).sum() + (_merges(classes, equal) > 0))
        V = planning.optimal_values(mdp, tol=TOL).values
        largest = max(largest, float(_gaps(V)[related].max(initial=0.0)))
        pairs += int(related.sum()) // 2
    text = (
        f"{violations} violations; {pairs} bisimilar pairs, V* differ by at most "
        f"{format_small(largest)}"
    )
    return Outcome(judge(violations == 0 and largest <= ROUNDING), text, f"{count} MDPs")


def _merges(classes: NDArray[np.int64], equal: NDArray[np.bool_]) -> int:
    """Return how many pairs of classes could be merged at once: 0 for the largest relation."""
    first = [int(np.flatnonzero(classes == c)[0]) for c in range(int(classes.max()) + 1)]
    return sum(bool(equal[s, t]) for i, s in enumerate(first) for t in first[:i])


def check_fixed_point(count: int) -> Outcome:
    """Theorem 1 and definition 2: F(d~) = d~, from 0 and from above, with the zero set of ~."""
    residual, wrong, gap = 0.0, 0, 0.0
    for mdp in sample_mdps(count, stochastic=True):
        d = exact.bisimulation(mdp, tol=TOL)
        residual = max(residual, float(np.abs(_apply_operator(mdp, d.values) - d.values).max()))
        wrong += int(((d.values == 0) != _build_relation(relation.bisimulation(mdp))).sum())
    for mdp in sample_mdps(count):
        low = np.zeros((mdp.num_states, mdp.num_states))
        high = 50.0 * ~np.eye(mdp.num_states, dtype=bool)
        for _ in range(300):
            low, high = _sweep(mdp, low), _sweep(mdp, high)
        gap = max(gap, float(np.abs(high - low).max()))
    text = (
        f"|F(d~) - d~| at most {format_small(residual)} by linear programmes; the zero set differs "
        f"from the relation in {wrong} pairs; iterates from 0 and from 50 end at most "
        f"{format_small(gap)} apart"
    )
    ok = residual <= ROUNDING and wrong == 0 and gap <= ROUNDING
    return Outcome(judge(ok), text, f"{count} stochastic, {count} deterministic MDPs")


def check_transport(count: int) -> Outcome:
    """Equation 1: the bound u <= 1 as printed."""
    below, total = 0, 0
    for seed, mdp in enumerate(sample_mdps(count, stochastic=True)):
        d = exact.bisimulation(mdp, tol=TOL).values
        rng = np.random.default_rng(seed)
        x, y = rng.dirichlet(np.ones(mdp.num_states), size=2)
        free, bounded = solve_transport(d, x, y), solve_transport(d, x, y, bounded=True)
        if d.max() > 1:
            total += 1
            below += bounded < free - ROUNDING
    text = (
        f"the printed bound u <= 1 gives a smaller optimum for {below} of {total} MDPs whose "
        "largest distance exceeds 1; without it, equation 1 is W1"
    )
    return Outcome(judge(below == 0, "differs"), text, f"{count} MDPs")


def check_iterations(count: int) -> Outcome:
    """The number of iterations for an accuracy delta."""
    delta, absolute, relative = 0.01, 0.0, 0.0
    for mdp in sample_mdps(count):
        d = exact.bisimulation(mdp, tol=TOL).values
        psi = np.zeros_like(d)
        for _ in range(math.ceil(math.log(delta) / math.log(mdp.discount))):
            psi = _sweep(mdp, psi)
        error = float(np.abs(psi - d).max())
        absolute = max(absolute, error / delta)
        if d.max() > 0:
            relative = max(relative, error / (delta * float(d.max())))
    text = (
        f"error / delta at most {absolute:.2f}; relative to the largest distance {relative:.2f}: "
        "the error after n sweeps is gamma^n times the largest distance"
    )
    verdict = judge(
        absolute <= 1 + ROUNDING, "differs" if relative <= 1 + 1e-4 else "does not hold"
    )
    return Outcome(verdict, text, f"{count} MDPs, delta 0.01")


def check_value_bounds(count: int) -> Outcome:
    """|V*(s) - V*(t)| <= d_lax <= d~, and the zero set of d_lax."""
    value, order, wrong = -np.inf, -np.inf, 0
    for mdp in sample_mdps(count, stochastic=True):
        V = planning.optimal_values(mdp, tol=TOL).values
        d_lax, d = exact.lax(mdp, tol=TOL).values, exact.bisimulation(mdp, tol=TOL).values
        value = max(value, float((_gaps(V) - d_lax).max()))
        order = max(order, float((d_lax - d).max()))
        wrong += int(((d_lax == 0) != _build_relation(relation.lax(mdp))).sum())
    text = (
        f"violations at most {format_small(value)} and {format_small(order)}; the zero set of "
        f"d_lax differs from the relation in {wrong} pairs"
    )
    ok = max(value, order) <= ROUNDING and wrong == 0
    return Outcome(judge(ok), text, f"{count} MDPs")


def check_duplicated_grid(count: int) -> Outcome:
    """Figure 1: a grid and its copy."""
    mdp = worlds.load("duplicated-grid")
    half = mdp.num_states // 2
    d = exact.bisimulation(mdp).values
    between = float(np.abs(d[np.arange(half), half + np.arange(half)]).max())
    classes = int(relation.bisimulation(mdp).max()) + 1
    text = f"{mdp.num_states} states, {classes} classes; a cell and its copy at {between:g}"
    return Outcome(judge(between == 0 and classes == half), text, "one MDP")


def check_brittleness(count: int) -> Outcome:
    """Relations of estimated probabilities: how many states and their copies remain bisimilar."""
    states, actions, samples = 8, 2, 100
    kept, copies, others = 0, [], []
    for seed in range(count):
        rng = np.random.default_rng(seed)
        P = rng.dirichlet(np.full(states, 0.3), (states, actions))
        P, R = np.concatenate([P, P]), np.tile(rng.random((states, actions)), (2, 1))
        P = np.concatenate([P, np.zeros_like(P)], axis=2)
        counts = rng.multinomial(samples, P.reshape(-1, 2 * states))
        estimate = MDP((counts / samples).reshape(P.shape), R, discount=0.9)
        same = np.arange(states), np.arange(states) + states
        kept += int(_build_relation(relation.bisimulation(estimate))[same].sum())
        d = exact.bisimulation(estimate, tol=1e-3).values
        copies.append(d[same].mean())
        others.append(d[:states, :states][~np.eye(states, dtype=bool)].mean())
    text = (
        f"{kept} of {count * states} states stay bisimilar to their copies with {samples} samples "
        f"per action; their mean distance is {np.mean(copies):.2f}, that of other pairs "
        f"{np.mean(others):.2f}"
    )
    ok = kept == 0 and float(np.mean(copies)) < 0.5 * float(np.mean(others))
    return Outcome(judge(ok), text, f"{count} estimated MDPs")


def check_pessimism(count: int) -> Outcome:
    """Figure 2: equal optimal values at a large distance; d_lax and d^pi."""
    lines, ok = [], True
    mdp = worlds.load("pessimism", discount=0.9)
    for K in (1.0, 100.0):
        scaled = MDP.deterministic(mdp.next_state, mdp.R * K, discount=0.9)
        V = planning.optimal_values(scaled, tol=TOL).values
        d, lax = exact.bisimulation(scaled, tol=TOL).values[0, 1], exact.lax(scaled).values[0, 1]
        pi = exact.on_policy(scaled, [0, 1, 0], tol=TOL).values[0, 1]
        lines.append(f"K = {K:g}: V* {V[0]:g} and {V[1]:g}, d~ {d:g}, d_lax {lax:g}, d^pi {pi:g}")
        ok &= bool(np.allclose([V[0], V[1], d], 10 * K)) and lax == 0 and pi == 0
    return Outcome(judge(ok), "; ".join(lines), "two MDPs")


def check_lax_pessimism(count: int) -> Outcome:
    """Lax bisimulation is pessimistic too: a bad action of one state that is never taken."""
    mdp = MDP.deterministic([[0, 2], [1, 1], [2, 2]], [[1, 0], [1, 1], [0, 0]], discount=0.9)
    V = planning.optimal_values(mdp, tol=TOL).values
    d_lax = float(exact.lax(mdp, tol=TOL).values[0, 1])
    pi = float(exact.on_policy(mdp, [0, 0, 0], tol=TOL).values[0, 1])
    text = f"a state with a useless second action: V* {V[0]:g} and {V[1]:g}, d_lax {d_lax:g}, "
    ok = bool(np.isclose(V[0], V[1])) and d_lax > 1 and pi == 0
    return Outcome(judge(ok), text + f"d^pi of the optimal policy {pi:g}", "one MDP")


def check_printed_lax_relation(count: int) -> Outcome:
    """The printed lax relation matches rewards and transitions by different actions."""
    # s and t have both rewards and both successors, in other combinations.
    mdp = MDP.deterministic(
        [[2, 3], [3, 2], [2, 2], [3, 3]], [[0, 1], [0, 1], [0, 0], [1, 1]], discount=0.9
    )
    d_lax = float(exact.lax(mdp, tol=TOL).values[0, 1])
    related = bool(_build_relation(relation.lax(mdp))[0, 1])
    text = (
        f"two states that satisfy the printed conditions have d_lax = {d_lax:.3g}; with one action "
        f"for both conditions, as in Taylor et al., they are {'' if related else 'not '}related"
    )
    return Outcome(judge(d_lax == 0, "differs"), text, "one MDP")


def check_on_policy(count: int) -> Outcome:
    """Theorems 2 and 3 with stochastic transitions and policies; the induced Markov chain."""
    wrong, excess, chains = 0, -np.inf, 0
    for seed, mdp in enumerate(sample_mdps(count, stochastic=True)):
        policy = sample_policy(mdp, seed)
        d = exact.on_policy(mdp, policy, tol=TOL)
        classes = relation.on_policy(mdp, policy)
        wrong += int(((d.values == 0) != _build_relation(classes)).sum())
        V = planning.policy_values(mdp, policy, tol=TOL).values
        excess = max(excess, float((_gaps(V) - d.values).max()))
        chain = relation.bisimulation(mdp.apply_policy(policy))
        chains += int((_build_relation(chain) != _build_relation(classes)).any())
    text = (
        f"the zero set differs in {wrong} pairs; |V^pi(s) - V^pi(t)| - d^pi at most "
        f"{format_small(excess)}; the relation differs from that of the Markov chain for {chains} "
        "MDPs"
    )
    ok = wrong == 0 and excess <= ROUNDING and chains == 0
    return Outcome(judge(ok), text, f"{count} MDPs with stochastic policies")


def check_deterministic_lifting(count: int) -> Outcome:
    """Lemma 1: W1 of two point masses is the distance of the points."""
    largest = 0.0
    for seed, mdp in enumerate(sample_mdps(count)):
        d, rng = exact.bisimulation(mdp, tol=TOL).values, np.random.default_rng(seed)
        s, t = (int(n) for n in rng.integers(mdp.num_states, size=2))
        unit = np.eye(mdp.num_states)
        largest = max(largest, abs(solve_transport(d, unit[s], unit[t]) - float(d[s, t])))
    return Outcome(
        judge(largest <= ROUNDING), f"differences at most {format_small(largest)}", f"{count} MDPs"
    )


def check_coupling(count: int) -> Outcome:
    """d~ of a deterministic MDP is the optimal value function of pairs (Ferns & Precup 2014)."""
    largest = 0.0
    for mdp in sample_mdps(count):
        n = mdp.num_states
        successors = (mdp.next_state[:, None] * n + mdp.next_state[None, :]).reshape(n * n, -1)
        gaps = np.abs(mdp.R[:, None] - mdp.R[None, :]).reshape(n * n, -1)
        pairs = MDP.deterministic(successors, gaps, discount=mdp.discount)
        V = planning.optimal_values(pairs, tol=TOL).values.reshape(n, n)
        largest = max(largest, float(np.abs(V - exact.bisimulation(mdp, tol=TOL).values).max()))
    text = f"the optimal values of all pairs of states differ by at most {format_small(largest)}"
    return Outcome(judge(largest <= ROUNDING), text, f"{count} MDPs")


def check_gridworld(count: int) -> Outcome:
    """The paper's GridWorld: states, actions and rewards; the range of the network's inputs."""
    mdp = worlds.load("mirrored-rooms")
    goals = count_steps_to_goal(mdp) == 0
    entered = goals[mdp.next_state] & (mdp.next_state != np.arange(mdp.num_states)[:, None])
    walls = mdp.next_state == np.arange(mdp.num_states)[:, None]
    ok = mdp.num_states == 31 and mdp.num_actions == 4 and int(goals.sum()) == 2
    ok &= bool((mdp.R[entered] == 1).all() and (mdp.R[walls] == -1).all())
    ok &= bool((mdp.R[~entered & ~walls] == 0).all())
    positions = np.zeros((1, 2)) if mdp.positions is None else mdp.positions
    inputs = (positions + 0.5) / 7 * 2 - 1
    text = (
        f"{mdp.num_states} states, {mdp.num_actions} actions, {int(goals.sum())} goals, rewards "
        f"-1, 0 and 1; the published scaling has inputs from {inputs.min():.2f} to "
        f"{inputs.max():.2f}, not [-1, 1]"
    )
    return Outcome("differs" if ok else "does not hold", text, "one MDP")


def check_hallway(count: int) -> Outcome:
    """The supplement: the row beside the hallway is farthest from it."""
    mdp = worlds.load("mirrored-rooms", discount=0.99)
    row = exact.bisimulation(mdp, tol=TOL).values[mdp.state("4,3")]
    beside = [row[mdp.state(f"5,{column}")] for column in range(1, 6)]
    others = [row[s] for s in range(31) if not mdp.state_name(s).startswith(("5,", "1,", "4,"))]
    text = (
        f"goal row beside it {min(beside):.1f} to {max(beside):.1f}, all rows but the goal rows "
        f"{min(others):.1f} to {max(others):.1f}, largest {row.max():.1f}"
    )
    return Outcome(judge(max(beside) == row.max() and min(beside) >= max(others)), text, "one MDP")


def check_sample_complexity(count: int) -> Outcome:
    """Castro (2011): the samples that a PAC bound requires for the estimate of Ferns et al."""
    lines, needed = [], []
    for discount in (0.9, 0.99):
        mdp = worlds.load("duplicated-grid", discount=discount)
        tol = 0.01 * float(exact.bisimulation(mdp, tol=1e-3).values.max())
        needed.append(exact.sample_complexity(mdp, tol=tol))
        lines.append(f"{needed[-1]:,} at discount {discount:g}")
    text = (
        f"for 1% of the largest distance with confidence 0.95, samples per state and action: "
        f"{', '.join(lines)}"
    )
    return Outcome(judge(min(needed) > 1_000_000), text, "62 states")
