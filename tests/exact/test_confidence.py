"""Confidence bounds: against slow loops, coverage, and what they assume."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import optimize

from bisimetric import MDP, DistanceBounds, InputError, Transitions, exact, worlds
from bisimetric.exact import _concentration
from bisimetric.exact.stochastic.interval_kernels import Slack


def random_mdp(rng: np.random.Generator, discount: float = 0.5) -> MDP:
    P = np.zeros((4, 2, 4))
    for row in P.reshape(-1, 4):
        row[rng.choice(4, rng.integers(1, 4), replace=False)] = 1.0
        row *= rng.random(4) + 0.1
        row /= row.sum()
    return MDP(P, rng.random((4, 2)), discount)


def sample(
    mdp: MDP, samples: int, rng: np.random.Generator, *, binary: bool = False
) -> Transitions:
    """Draw every state and action equally often, with constant or with binary rewards."""
    P = mdp.normalised_probabilities.toarray()
    row = np.repeat(np.arange(len(P)), samples)
    successors = np.array([rng.choice(P.shape[1], p=P[i] / P[i].sum()) for i in row])
    rewards = mdp.R.ravel()[row]
    if binary:
        rewards = (rng.random(len(row)) < rewards).astype(float)
    states, actions = row // mdp.num_actions, row % mdp.num_actions
    return Transitions(
        states,
        actions,
        rewards,
        successors,
        np.zeros(len(row), bool),
        num_states=mdp.num_states,
        num_actions=mdp.num_actions,
    )


def bound(data: Transitions, **options: Any) -> DistanceBounds:
    return exact.confidence_bounds(data, **{"reward_range": (0, 1), "discount": 0.5, **options})


def holds(bounds: DistanceBounds, d: Any) -> bool:
    return bool(((bounds.lower <= d.values + d.error) & (d.values - d.error <= bounds.upper)).all())


# Slow loops.


def chernoff(q: float, level: float) -> float:
    """The least p with kl(q, p) <= level, by a root finder."""
    if q in (0.0, 1.0):
        return 0.0 if q == 0 else math.exp(-level)

    def excess(p: float) -> float:
        return q * math.log(q / p) + (1 - q) * math.log((1 - q) / (1 - p)) - level

    return float(optimize.brentq(excess, 1e-300, q))


def transport_cost(d: Any, p: Any, q: Any) -> float:
    """W1 with common mass in place, by a linear programme."""
    common = np.minimum(p, q)
    p, q, n = p - common, q - common, len(p)
    if p.sum() < 1e-15:
        return 0.0
    marginals = np.vstack([np.kron(np.eye(n), np.ones(n)), np.kron(np.ones(n), np.eye(n))])
    found: Any = optimize.linprog(d.ravel(), A_eq=marginals, b_eq=np.concatenate([p, q]))
    return float(found.fun)


def slow_bounds(data: Transitions, confidence: float, adaptive: bool, sweeps: int) -> Any:
    """d~ with every option at its default, in plain loops; rewards in [0, 1], discount 1/2."""
    S, A, gamma, D = 4, 2, 0.5, 2.0
    assert data.states is not None
    failure = (1 - confidence) / 4
    rows = {}
    for s in range(S):
        for a in range(A):
            chosen = (data.states == s) & (data.actions == a)
            x, r = data.successors[chosen], data.rewards[chosen]
            rows[s, a] = (np.bincount(x, minlength=S) / len(x), x, r, len(x))

    def penalty(K: int) -> float:
        return math.log(2 * K) + 2 * math.log(1 + math.log(K)) if adaptive else 0.0

    def bernstein(deviation: float, width: float, level: float, K: int) -> float:
        return deviation * math.sqrt(2 * level / K) + 7 * width * level / (3 * (K - 1))

    def row_slack(U: Any, s: int, a: int) -> float:
        p, _, r, K = rows[s, a]
        base = math.log(S * A / failure) + penalty(K)
        level, mean = base + math.log(4), r.mean()
        reward = max(mean - chernoff(mean, level / K), 1 - mean - chernoff(1 - mean, level / K))
        reward = min(reward, bernstein(r.std(ddof=1), 1.0, level + math.log(2), K))
        farthest = U.max(axis=1)
        order = sorted(np.flatnonzero(p), key=lambda state: -farthest[state])
        excess, total, log_sets = 0.0, 0.0, 0.0
        for k, state in enumerate(order):
            if k + 1 < S:
                log_sets = max(log_sets, math.log(math.comb(S, k + 1)))
            single = (base + 2 * math.log(S)) / K
            excess += p[state] - chernoff(p[state], single)
            excess = min(excess, math.sqrt((base + math.log(S) + log_sets) / (2 * K)), 1.0)
            after = farthest[order[k + 1]] if k + 1 < len(order) else 0.0
            total += (farthest[state] - after) * excess
        return float(reward + gamma * total)

    comparisons = S * (S - 1) / 2 * A
    L, U = np.zeros((S, S)), D * (1 - np.eye(S))
    for _ in range(sweeps):
        new_L, new_U = L.copy(), U.copy()
        for s in range(S):
            for t in range(s):
                low, high = 0.0, 0.0
                for a in range(A):
                    gap = abs(rows[s, a][2].mean() - rows[t, a][2].mean())
                    own = row_slack(U, s, a) + row_slack(U, t, a)
                    square, level, linear = 0.0, math.log(comparisons / failure), 0.0
                    for state in (s, t):
                        p, _, r, K = rows[state, a]
                        width = 1.0 + gamma * U.max()
                        square += width**2 / (2 * K)
                        level += penalty(K)
                        spread = math.sqrt(p @ U**2 @ p / 2 * K / (K - 1))
                        linear += bernstein(
                            r.std(ddof=1) + gamma * spread, width,
                            math.log(4 * comparisons / failure) + penalty(K), K,
                        )  # fmt: skip
                    rest = min(own, linear, math.sqrt(square * level))
                    p, q = rows[s, a][0], rows[t, a][0]
                    low = max(low, gap + gamma * transport_cost(L, p, q) - own)
                    high = max(high, gap + gamma * transport_cost(U, p, q) + rest)
                new_L[s, t] = new_L[t, s] = max(L[s, t], low)
                new_U[s, t] = new_U[t, s] = min(U[s, t], high)
        L, U = new_L, new_U
    return L, U


@pytest.mark.parametrize("sampling", ["adaptive", "fixed"])
@pytest.mark.parametrize("samples", [60, 800])
def test_bounds_are_those_of_slow_loops(sampling: Any, samples: int) -> None:
    rng = np.random.default_rng(samples)
    data = sample(random_mdp(rng), samples, rng, binary=True)
    found = bound(data, sampling=sampling, confidence=0.9, tol=1e-2)
    sweeps = found.metadata["sweeps"]
    lower, upper = slow_bounds(data, 0.9, sampling == "adaptive", sweeps)
    assert np.abs(found.lower - lower).max() < 1e-6
    assert np.abs(found.upper - upper).max() < 1e-6
    assert (found.lower <= lower).all()  # rounded outward
    assert (upper <= found.upper).all()


# Coverage.


def test_bounds_hold_on_random_mdps(monkeypatch: pytest.MonkeyPatch) -> None:
    cases, informative, num_observed = [], 0, 0
    for seed in range(25):
        rng = np.random.default_rng(seed)
        mdp = random_mdp(rng)
        data = sample(mdp, int(rng.integers(50, 1500)), rng, binary=bool(seed % 2))
        policy = rng.dirichlet(np.ones(2), 4)
        cases.append((data, exact.bisimulation(mdp)))
        found = bound(data, sampling="fixed")
        informative += found.metadata["vacuous"] < 1
        assert holds(found, cases[-1][1])
        if data.to_mdp(discount=0.5).P.nnz == mdp.P.nnz and not seed % 2:
            more = bound(data, sampling="fixed", support="observed", rewards="deterministic")
            assert more.metadata["mean_width"] < found.metadata["mean_width"]
            assert holds(more, cases[-1][1])
            num_observed += 1
        assert holds(bound(data, kind="lax"), exact.lax(mdp))
        assert holds(bound(data, kind="on_policy", policy=policy), exact.on_policy(mdp, policy))
    assert informative >= 20
    assert num_observed >= 8
    # A tenth of the slack is not enough, so that this test can fail.
    compute = _concentration.RowSlack.compute

    def shrink(self: Any, upper: Any) -> Slack:
        slack = compute(self, upper)
        return Slack(slack.row / 10, slack.linear / 10, slack.square / 100, slack.level)

    monkeypatch.setattr(_concentration.RowSlack, "compute", shrink)
    assert not all(holds(bound(data, sampling="fixed"), d) for data, d in cases)


def test_recorded_episodes_of_a_terminating_environment_are_covered() -> None:
    mdp = worlds.load("random", states=5, actions=2, successors=2, discount=0.5, seed=0)
    P, R = mdp.P.toarray().reshape(5, 2, 5), np.array(mdp.R)
    P[-1], R[-1] = np.eye(5)[-1], 0.0
    mdp = MDP(P, R, 0.5)
    rng, s, steps = np.random.default_rng(0), 0, []
    for _ in range(12_000):
        a = int(rng.integers(2))
        x = int(rng.choice(5, p=P[s, a] / P[s, a].sum()))
        steps.append((s, a, R[s, a], s if x == 4 else x, x == 4))
        s = 0 if x == 4 else x
    states, actions, rewards, successors, terminated = map(np.array, zip(*steps, strict=True))
    data = Transitions(states, actions, rewards, successors, terminated)
    assert data.terminal_state == 4
    low, high = float(R.min()), float(R.max())
    found = bound(data, reward_range=(low, high), rewards="deterministic")
    d = exact.bisimulation(mdp)
    assert holds(found, d)
    assert found.metadata["mean_width"] < 0.5 * mdp.diameter_bound
    # The policy that recorded the data, and the same one given with and without the end.
    uniform = np.full((5, 2), 0.5)
    on_policy = exact.on_policy(mdp, uniform)
    recorded = bound(data, reward_range=(low, high), kind="on_policy")
    assert holds(recorded, on_policy)
    for policy in (uniform, uniform[:-1]):
        given = bound(data, reward_range=(low, high), kind="on_policy", policy=policy)
        assert holds(given, on_policy)
        assert given.policy is not None
        assert given.policy.shape == (5, 2)
    fixed = bound(data, reward_range=(low, high), kind="on_policy", policy=[0, 1, 0, 1])
    assert holds(fixed, exact.on_policy(mdp, [0, 1, 0, 1, 0]))


# What is assumed.


def test_a_deterministic_environment_is_known_if_it_is_said_to_be() -> None:
    mdp = worlds.load("mirrored-rooms", discount=0.9)
    row = np.arange(mdp.R.size)
    data = Transitions(row // 4, row % 4, mdp.R.ravel(), mdp.next_state.ravel(), row < 0)
    options: dict[str, Any] = {"reward_range": (-1, 1), "discount": 0.9, "tol": 1e-6}
    known = bound(data, support="observed", rewards="deterministic", **options)
    d = exact.bisimulation(mdp)
    assert holds(known, d)
    assert known.max_width < 1e-5
    assert bound(data, **options).metadata["vacuous"] == 1


def test_more_assumptions_and_more_samples_tighten_the_bounds() -> None:
    rng = np.random.default_rng(5)
    data = sample(random_mdp(rng), 1_000, rng)
    widths = [
        bound(data, **options).metadata["mean_width"]
        for options in (
            {"num_states": 100}, {}, {"sampling": "fixed"},
            {"sampling": "fixed", "support": "observed"},
            {"sampling": "fixed", "support": "observed", "rewards": "deterministic"},
            {"sampling": "fixed", "support": "observed", "rewards": "deterministic",
             "confidence": 0.5},
        )
    ]  # fmt: skip
    assert widths == sorted(widths, reverse=True)
    assert widths[-1] < 0.3 * widths[0]


def test_unvisited_actions_and_ids_have_trivial_bounds() -> None:
    rng = np.random.default_rng(1)
    mdp = random_mdp(rng)
    whole = sample(mdp, 2_000, rng)
    assert whole.states is not None
    part = whole[~((whole.states == 3) & (whole.actions == 1))]
    found = bound(part, sampling="fixed")
    assert found.metadata["without"] == 1
    assert holds(found, exact.bisimulation(mdp))
    assert found.upper[3, 0] == pytest.approx(2.0)
    assert found.upper[0, 1] < 2.0
    # An id that no step leaves or enters is no state: it changes nothing for the others.
    fields = (part.states, part.actions, part.rewards, part.next_states, part.terminated)
    wider = bound(Transitions(*fields, num_states=5), sampling="fixed")  # type: ignore[arg-type]
    assert np.array_equal(wider.upper[:4, :4], found.upper)
    assert wider.bounds(0, 4) == (0.0, found.upper[3, 0])


def test_one_state_and_equal_rewards() -> None:
    data = Transitions([0, 0], [0, 0], [1.0, 1.0], [0, 0], [False, False])
    assert bound(data).max_width == 0
    two = Transitions([0, 1], [0, 0], [1.0, 1.0], [1, 0], [False, False])
    assert bound(two, reward_range=(1, 1)).max_width < 1e-12


def test_bounds_of_confidence_are_marked() -> None:
    rng = np.random.default_rng(0)
    found = bound(sample(random_mdp(rng), 50, rng), confidence=0.9)
    assert found.confidence == 0.9
    assert found.error == np.inf
    assert found.mdp.is_empirical
    assert found.metadata["samples"] == [50, 50.0, 50]
    assert "with probability 0.9" in repr(found)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"reward_range": (0, 0.5)}, r"reward_range is \(0, 0.5\) and rewards from 0 to 1 were"),
        ({"reward_range": (1, 0)}, "reward_range is .* and must be two finite numbers"),
        ({"confidence": 1.0}, "confidence is 1.0 and must be above 0 and below 1"),
        ({"kind": "mico"}, "kind is 'mico' and must be one of"),
        ({"sampling": "random"}, "sampling is 'random' and must be one of"),
        ({"support": "known"}, "support is 'known' and must be one of"),
        ({"rewards": "constant"}, "rewards is 'constant' and must be one of"),
        ({"rewards": "deterministic"}, "the rewards of state 0 and action 0 differ"),
        ({"policy": [0, 0]}, "policy is for kind='on_policy'"),
        ({"kind": "on_policy", "policy": [0, 7]}, "policy"),
        ({"num_states": 1}, "num_states is 1 and must be a whole number, at least 2"),
        ({"tol": 0.0}, "tol is 0.0 and must be above 0"),
        ({"discount": 1.0}, "discount"),
    ],
)
def test_invalid_arguments_are_named(options: Any, message: str) -> None:
    data = Transitions([0, 0, 1], [0, 0, 0], [0.0, 1.0, 0.0], [1, 0, 1], [False] * 3)
    with pytest.raises(InputError, match=message):
        bound(data, **options)
    with pytest.raises(InputError, match="transitions are MDP and must be Transitions"):
        exact.confidence_bounds(MDP([[[1.0]]], [[0.0]], 0.5), reward_range=(0, 1))  # type: ignore[arg-type]
