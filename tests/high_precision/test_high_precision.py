"""The oracle against results by hand, against rational elimination, and with claims that lie."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from tests import high_precision as oracle
from tests.adversarial_mdps import generate, generate_star
from tests.high_precision import BITS, Enclosure, closed_forms, distances, transport, values
from tests.high_precision.models import Distribution


def near(found: Enclosure, index: Any, true: Fraction | float) -> bool:
    """Whether an enclosure holds the true number; floats are taken as they are."""
    key = (index,) if isinstance(index, int) else index
    return abs(found.centres[key] - oracle.round_to_units(Fraction(true))) <= found.radius + 1


def row(found: Distribution) -> dict[int, Fraction]:
    return {x: Fraction(mass, found.total) for x, mass in found.masses.items()}


def test_rows_are_divided_by_their_exact_sum() -> None:
    assert row(oracle.normalise({3: 0.5, 1: 0.25, 0: 0.0})) == {
        3: Fraction(2, 3),
        1: Fraction(1, 3),
    }
    tiny = oracle.normalise({0: 5e-324, 1: 1.0})
    assert row(tiny)[0] == Fraction(1, 1 + 2**1074)


def test_a_chain_mixes_normalised_rows_with_a_normalised_policy() -> None:
    mdp = oracle.model([[{0: 0.5}, {1: 0.25}], [{1: 1.0}] * 2], [[8.0, 2.0], [1.0, 1.0]], 0.5)
    chain = oracle.induce_chain(mdp, [[0.25, 0.5], [1.0, 0.0]])
    assert row(chain.row(0, 0)) == {0: Fraction(1, 3), 1: Fraction(2, 3)}
    assert chain.reward(0, 0) == 4
    assert oracle.induce_chain(mdp, [1, 0]).reward(0, 0) == 2


def test_rewards_that_cancel() -> None:
    stay = [[{0: 1.0}] * 2, [{1: 1.0}] * 2]
    mdp = oracle.model(stay, [[9e15, -1e15], [0.0, 0.0]], 0.9)
    a, b = Fraction(0.1), Fraction(0.9)
    true = (a * Fraction(9e15) - b * Fraction(1e15)) / (a + b) / (1 - Fraction(0.9))
    found = oracle.on_policy(mdp, [[0.1, 0.9], [1.0, 0.0]])
    assert near(found, (0, 1), abs(true))
    assert found[0, 1] == pytest.approx(0.27755575615628914, rel=1e-12)


def test_a_coin() -> None:
    # State 0 leads to the absorbing 1 or 2, which pay 0 and 1, at discount 1/2.
    mdp = oracle.model([[{1: 0.5, 2: 0.5}], [{1: 1.0}], [{2: 1.0}]], [[0.0], [0.0], [1.0]], 0.5)
    U = oracle.mico(mdp, [0, 0, 0])
    expected = [[0.5, 0.5, 1.5], [0.5, 0.0, 2.0], [1.5, 2.0, 0.0]]
    assert all(near(U, (s, t), expected[s][t]) for s in range(3) for t in range(3))
    for d in (oracle.bisimulation(mdp), oracle.lax(mdp), oracle.on_policy(mdp, [0, 0, 0])):
        assert near(d, (0, 1), 0.5)
        assert near(d, (0, 2), 1.5)
        assert near(d, (1, 2), 2)
        assert near(d, (0, 0), 0)
    V = oracle.optimal_values(mdp)
    assert [V[s] for s in range(3)] == [0.5, 0.0, 2.0]


def test_the_pessimism_of_bisimulation() -> None:
    # s and t have the same two actions with the names exchanged; u is absorbing with reward 0.
    stay = [[{0: 1.0}, {2: 1.0}], [{2: 1.0}, {1: 1.0}], [{2: 1.0}, {2: 1.0}]]
    mdp = oracle.model(stay, [[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]], 0.5)
    assert near(oracle.bisimulation(mdp), (0, 1), 2)
    assert near(oracle.lax(mdp), (0, 1), 0)
    assert near(oracle.lax(mdp), (0, 2), 2)
    assert near(oracle.on_policy(mdp, [0, 1, 0]), (0, 1), 0)


def test_states_that_lack_actions() -> None:
    P = [[{0: 1.0}, {0: 1.0}], [{1: 1.0}, {1: 1.0}]]
    mdp = oracle.model(P, [[3.0, 99.0], [1.0, 0.0]], 0.5, [[True, False], [True, True]])
    assert near(oracle.bisimulation(mdp), (0, 1), 6)
    # 3 against 1 and 0: the Hausdorff distance is 3 per step.
    assert near(oracle.lax(mdp), (0, 1), 6)
    assert near(oracle.optimal_values(mdp), 0, 6)
    assert near(oracle.action_values(mdp, oracle.optimal_values(mdp)), (1, 1), 1)


def test_discounts_near_one_have_closed_forms() -> None:
    g = math.nextafter(1, 0)
    swap = oracle.model([[{1: 1.0}], [{0: 1.0}]], [[1.0], [0.25]], g)
    assert near(oracle.bisimulation(swap), (0, 1), Fraction(3, 4) / (1 - Fraction(g)))
    assert near(oracle.optimal_values(swap), 0, (1 + Fraction(g) / 4) / (1 - Fraction(g) ** 2))


@pytest.mark.parametrize("seed", range(40))
def test_transport_is_the_best_vertex(seed: int) -> None:
    """All couplings that are vertices, for 2 x 3 masses, from their basic cells."""
    rng = np.random.default_rng(seed)
    send = {x: int(mass) for x, mass in enumerate(rng.integers(1, 9, 2))}
    shares = rng.integers(1, 9, 3)
    total = sum(send.values()) * int(shares.sum())
    take = {y: int(share) * sum(send.values()) for y, share in enumerate(shares)}
    send = {x: mass * int(shares.sum()) for x, mass in send.items()}
    assert sum(take.values()) == total
    costs = rng.integers(0, 20, (2, 3))
    best = None
    for cells in itertools.combinations(itertools.product(range(2), range(3)), 4):
        matrix = np.zeros((5, 4))
        for k, (x, y) in enumerate(cells):
            matrix[x, k] = matrix[2 + y, k] = 1
        right = np.array([*send.values(), *take.values()], float)
        flow, _, rank, _ = np.linalg.lstsq(matrix, right, rcond=None)
        if rank == 4 and np.allclose(matrix @ flow, right) and (flow > -1e-9).all():
            cost = round(float(sum(f * costs[cell] for f, cell in zip(flow, cells, strict=True))))
            best = cost if best is None else min(best, cost)
    found, flow_found = transport.solve_transport(send, take, lambda x, y: int(costs[x, y]))
    assert found == best
    for x, mass in send.items():
        assert sum(m for (i, _), m in flow_found.items() if i == x) == mass


@pytest.mark.parametrize("seed", range(30))
def test_values_agree_with_rational_elimination(seed: int) -> None:
    case = generate(seed, max_states=4)
    mdp = oracle.model(case.P, case.R, case.discount, case.available)
    exact = values.exact_policy_values(oracle.induce_chain(mdp, case.policy))
    found = oracle.policy_values(mdp, case.policy)
    assert all(near(found, s, value) for s, value in enumerate(exact))


@pytest.mark.parametrize("seed", range(60))
def test_distances_keep_the_laws(seed: int) -> None:
    """|V(s) - V(t)| <= d_lax <= d~ and |V^pi(s) - V^pi(t)| <= d^pi <= MICo; triangles."""
    case = generate(seed, max_states=4)
    mdp = oracle.model(case.P, case.R, case.discount, case.available)
    d, lax = oracle.bisimulation(mdp), oracle.lax(mdp)
    on_policy, mico = oracle.on_policy(mdp, case.policy), oracle.mico(mdp, case.policy)
    V, W = oracle.optimal_values(mdp), oracle.policy_values(mdp, case.policy)
    slack = 4 * max(each.radius for each in (d, lax, on_policy, mico, V, W))
    assert slack < 1 << (BITS - 1100)
    states = range(case.num_states)
    for s, t in itertools.product(states, states):
        assert abs(V.centres[s,] - V.centres[t,]) <= lax.centres[s, t] + slack
        assert lax.centres[s, t] <= d.centres[s, t] + slack
        assert abs(W.centres[s,] - W.centres[t,]) <= on_policy.centres[s, t] + slack
        assert on_policy.centres[s, t] <= mico.centres[s, t] + slack
        for u in states:
            for each in (d, lax, on_policy, mico):
                assert each.centres[s, t] <= each.centres[s, u] + each.centres[u, t] + slack


@pytest.mark.parametrize("seed", range(8))
def test_stars_agree_with_their_closed_form(seed: int) -> None:
    star = generate_star(seed, 5, 0.9)
    case = star.case()
    mdp = oracle.model(case.P, case.R, case.discount)
    given = (star.first, star.second, star.rewards, star.start, star.discount)
    assert near(oracle.bisimulation(mdp), (0, 1), closed_forms.star_distance(*given))
    assert near(oracle.mico(mdp, case.policy), (0, 1), closed_forms.star_mico(*given))


def test_wasserstein_of_a_line() -> None:
    d = {(s, t): (s - t) << BITS for s in range(3) for t in range(s)}
    p, q = oracle.normalise({0: 0.5, 2: 0.5}), oracle.normalise({1: 1.0})
    assert distances.wasserstein(d, p, q) == 1 << BITS


def test_diverging_strategies_are_held() -> None:
    # Both players at once lead to negative tables here.
    successors = [[3, 2], [4, 2], [1, 2], [0, 3], [3, 2]]
    P = [[{x: 1.0} for x in row] for row in successors]
    slight = 0.30000000000099997
    R = [[0.3, 0.3], [slight, 0.300000001], [0.3, 0.3], [0.299999999999, 0.3], [0.3, 0.3]]
    found = oracle.lax(oracle.model(P, R, 0.9999))
    assert near(found, (0, 4), 0)
    assert found.is_positive((0, 1))


def test_a_wrong_claim_is_detected() -> None:
    truth = Enclosure({(0, 1): oracle.round_to_units(1.0)}, 5)
    assert truth.excess((0, 1), 1.0, 0.0) == 0
    assert truth.excess((0, 1), 1 + 1e-9, 2e-9) == 0
    assert truth.excess((0, 1), 1 + 1e-8, 1e-9) == pytest.approx(10)
    assert truth.excess((0, 1), math.nextafter(1, 2), 0.0) == math.inf
    assert truth.excess((0, 1), 1.0, math.nan) == math.inf
    assert truth.excess((0, 1), math.nan, 1.0) == math.inf
    assert truth.excess((0, 1), 7.0, math.inf) == 0
    assert truth.below((0, 1), 1.0)
    assert not truth.below((0, 1), 0.5)
    assert truth.above((0, 1), 1.0)
    assert not truth.above((0, 1), 1.5)
