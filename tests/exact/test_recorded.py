"""Distances between recorded steps: against chains, rationals and every continuation of the data.

A recording is made by following a chain. The reference of a step is d^pi of its state, by rational
arithmetic, or by `exact.on_policy` on the chain itself.
"""

from __future__ import annotations

import warnings
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from bisimetric import (
    MDP,
    Distance,
    InputError,
    InsufficientMemory,
    NotConverged,
    Transitions,
    _memory,
    exact,
    explorer,
)
from bisimetric._rounding import UNIT
from bisimetric.errors import StochasticDataWarning
from bisimetric.exact._recorded import bound_powers
from bisimetric.exact.deterministic import diagonal_kernels
from bisimetric.uses.certificates import certify_error
from tests.property_testing import scaled
from tests.strategies import DISCOUNTS, REWARDS


def record(
    successors: list[int], rewards: list[float], episodes: list[tuple[int, int]]
) -> Transitions:
    """Follow a chain from each start for a number of steps; its last state terminates."""
    end = len(successors) - 1
    rows = []
    for start, length in episodes:
        s = start
        for k in range(length):
            following = successors[s]
            terminated = following == end
            rows.append((s, rewards[s], following, terminated, k == length - 1))
            s = following
            if terminated:
                break
    states, paid, next_states, ended, cut = map(np.array, zip(*rows, strict=True))
    actions = np.zeros(len(states), int)
    return Transitions(states, actions, paid, next_states, ended, cut, num_states=end + 1)


@st.composite
def recordings(draw: st.DrawFn) -> tuple[Transitions, MDP]:
    """A recording of a small chain whose last state is terminal, and the chain."""
    size = draw(st.integers(2, 6))
    successors = draw(st.lists(st.integers(0, size - 1), min_size=size, max_size=size))
    rewards = draw(st.lists(REWARDS, min_size=size, max_size=size))
    successors[-1], rewards[-1] = size - 1, 0.0
    episode = st.tuples(st.integers(0, size - 2), st.integers(1, 12))
    episodes = draw(st.lists(episode, min_size=1, max_size=4))
    discount = draw(st.sampled_from(DISCOUNTS))
    chain = MDP.deterministic(
        np.array(successors)[:, None], np.array(rewards)[:, None], discount=discount
    )
    return record(successors, rewards, episodes), chain


def bound_rewards(chain: MDP) -> tuple[float, float]:
    return float(chain.R.min()), float(chain.R.max())


def list_states(d: Distance, data: Transitions, chain: MDP) -> NDArray[np.int64]:
    """The state of the chain for each state of the distance."""
    ranges = [np.arange(start, stop) for start, stop in d.metadata["step_ranges"]]
    states = np.asarray(data.states)[np.concatenate(ranges)]
    return np.append(states, chain.num_states - 1) if data.terminated.any() else states


def compute_plainly(data: Transitions, discount: float, tail: float) -> NDArray[np.float64]:
    """The recursion as a plain loop, over all steps and the terminal state."""
    n = len(data)
    stops = data.truncated.copy()
    stops[-1] = True
    d = np.zeros((n + 1, n + 1))  # n is the terminal state
    order = range(n, -1, -1)

    def follow(i: int) -> int | None:
        if i == n or data.terminated[i]:
            return n
        return None if stops[i] else i + 1

    reward = np.append(data.rewards, 0.0)
    for i in order:
        for j in order:
            if i == j:
                continue
            x, y = follow(i), follow(j)
            following = tail if x is None or y is None else d[x, y]
            d[i, j] = abs(reward[i] - reward[j]) + discount * following
    return d if data.terminated.any() else d[:n, :n]


def sum_gaps(
    rewards: tuple[list[float], list[float]],
    discount: float,
    future: tuple[float, float] = (0.0, 0.0),
) -> Fraction:
    """The discounted sum of the reward gaps of two episodes, each continued by one reward."""
    total, weight = Fraction(0), Fraction(1)
    for k in range(max(map(len, rewards))):
        a, b = (
            Fraction(paid[k] if k < len(paid) else later)
            for paid, later in zip(rewards, future, strict=True)
        )
        total += weight * abs(a - b)
        weight *= Fraction(discount)
    return total + weight * abs(Fraction(future[0]) - Fraction(future[1])) / (
        1 - Fraction(discount)
    )


@given(recordings())
@settings(deadline=None, max_examples=scaled(150))
def test_the_error_contains_the_metric_of_the_chain(case: tuple[Transitions, MDP]) -> None:
    data, chain = case
    d = exact.recorded(data, discount=chain.discount, reward_range=bound_rewards(chain))
    reference = exact.on_policy(chain)
    states = list_states(d, data, chain)
    expected = reference.values[np.ix_(states, states)]
    assert (np.abs(d.values - expected) <= d.error + reference.error).all()


@given(recordings())
@settings(deadline=None, max_examples=scaled(150))
def test_terminated_episodes_need_no_range_and_are_exact(case: tuple[Transitions, MDP]) -> None:
    data, chain = case
    ended = [each for each in data.episodes() if each.terminated[-1]]
    if not ended:
        return
    whole = Transitions.concatenate(ended)
    d = exact.recorded(whole, discount=chain.discount)
    reference = exact.on_policy(chain, tol=1e-6)
    states = list_states(d, whole, chain)
    assert d.metadata["without_successor"] == []
    assert d.error <= 1e-6
    expected = reference.values[np.ix_(states, states)]
    assert (np.abs(d.values - expected) <= d.error + reference.error).all()


@given(recordings(), st.sampled_from(["float64", "float32"]))
@settings(deadline=None, max_examples=scaled(150))
def test_bands_equal_the_plain_loop(case: tuple[Transitions, MDP], dtype: str) -> None:
    data, chain = case
    low, high = bound_rewards(chain)
    d = exact.recorded(data, discount=chain.discount, reward_range=(low, high), dtype=dtype)
    low, high = (min(low, 0.0), max(high, 0.0)) if data.terminated.any() else (low, high)
    tail = ((high - low) / (1 - chain.discount) * (1 + 8 * UNIT) + 2.0**-1073) / 2
    expected = compute_plainly(data, chain.discount, tail).astype(dtype)
    np.testing.assert_array_equal(d.values, expected)


@given(recordings(), st.integers(1, 5))
@settings(deadline=None, max_examples=scaled(60))
def test_the_width_of_bands_changes_nothing(case: tuple[Transitions, MDP], width: int) -> None:
    data, chain = case
    whole = exact.recorded(data, discount=chain.discount, reward_range=bound_rewards(chain))
    with pytest.MonkeyPatch.context() as patch:

        def map_bands(work: Any, size: int, entries: int) -> list[float]:
            return [work(low, min(low + width, size)) for low in range(0, size, width)]

        patch.setattr(diagonal_kernels, "map_rows", map_bands)
        parts = exact.recorded(data, discount=chain.discount, reward_range=bound_rewards(chain))
    np.testing.assert_array_equal(whole.values, parts.values)
    assert whole.error == parts.error


@given(recordings(), st.sampled_from([0.01, 0.5, 3.0, 50.0]))
@settings(deadline=None, max_examples=scaled(150))
def test_tol_keeps_the_steps_with_long_enough_futures(
    case: tuple[Transitions, MDP], tol: float
) -> None:
    data, chain = case
    options: Any = {"discount": chain.discount, "reward_range": bound_rewards(chain)}
    every = exact.recorded(data, **options)
    try:
        d = exact.recorded(data, tol=tol, **options)
    except InputError:
        tails = [tail for *_, tail in list_tails(data, chain)]
        assert min(tails) > tol * (1 - 1e-6)
        return
    assert d.error <= tol
    kept = np.concatenate([np.arange(*each) for each in d.metadata["step_ranges"]])
    assert d.metadata["left_out"] == len(data) - len(kept)
    rows = np.append(kept, len(data)) if data.terminated.any() else kept
    np.testing.assert_array_equal(d.values, every.values[np.ix_(rows, rows)])
    assert every.error > tol or len(kept) == len(data)
    # The first step that was left out would exceed tol.
    for start, stop, _ in list_tails(data, chain):
        last = int(((kept >= start) & (kept < stop)).sum()) + start
        if last < stop:
            tail = bound_tail(data, chain, stop - last)
            assert tail > tol * (1 - 1e-6) - every.error * 1e-6


def bound_tail(data: Transitions, chain: MDP, horizon: int) -> float:
    """discount^k D / 2, in floats."""
    span = np.ptp([*bound_rewards(chain), *([0.0] if data.terminated.any() else [])])
    return float(chain.discount**horizon * span / (1 - chain.discount) / 2)


def list_tails(data: Transitions, chain: MDP) -> list[tuple[int, int, float]]:
    """The steps of each episode, and the bound on the tail of its first step."""
    found, start = [], 0
    for each in data.episodes():
        tail = 0.0 if each.terminated[-1] else bound_tail(data, chain, len(each))
        found.append((start, start + len(each), tail))
        start += len(each)
    return found


@given(
    st.lists(REWARDS, min_size=1, max_size=8),
    st.lists(REWARDS, min_size=1, max_size=8),
    st.sampled_from([0.3, 0.9, 0.999]),
    st.tuples(*[st.sampled_from([-10.0, 10.0, 0.25])] * 2),
    st.sampled_from(["float64", "float32"]),
)
@settings(deadline=None, max_examples=scaled(150))
def test_intervals_contain_every_continuation(
    first: list[float],
    second: list[float],
    discount: float,
    future: tuple[float, float],
    dtype: str,
) -> None:
    """By rationals: each episode continues with one of its rewards for ever."""
    n = len(first) + len(second)
    cut = np.zeros(n, bool)
    cut[[len(first) - 1, -1]] = True
    data = vectors(n, rewards=first + second, truncated=cut)
    d = exact.recorded(data, discount=discount, reward_range=(-10, 10), dtype=dtype)
    for i in range(len(first)):
        for j in range(len(second)):
            truth = sum_gaps((first[i:], second[j:]), discount, future)
            assert abs(Fraction(float(d.values[i, len(first) + j])) - truth) <= Fraction(d.error)
    # At the last steps the two extreme continuations attain the bound, up to rounding.
    last = Fraction(float(d.values[len(first) - 1, n - 1]))
    for extreme in ((-10.0, 10.0), (10.0, 10.0)):
        truth = sum_gaps(([first[-1]], [second[-1]]), discount, extreme)
        assert abs(last - truth) >= Fraction(d.error) * Fraction(999, 1000)


def test_rounding_is_part_of_the_error() -> None:
    """Terminated episodes have no tail: only rounding separates them from the rational sum."""
    rng = np.random.default_rng(0)
    rewards = rng.normal(size=400)
    x = np.arange(401.0)[:, None]
    ended = np.zeros(400, bool)
    ended[[199, 399]] = True
    data = Transitions(x[:-1], np.zeros(400, int), rewards, x[1:], ended)
    for dtype in ("float64", "float32"):
        d = exact.recorded(data, discount=0.99, dtype=dtype)
        pairs = [(0, 200), (3, 311), (150, 201), (0, 400), (250, 400)]
        deviations = []
        for i, j in pairs:
            future_i = rewards[i : 200 if i < 200 else 400].tolist()
            future_j = rewards[j : 200 if j < 200 else 400].tolist()
            truth = sum_gaps((future_i, future_j), 0.99)
            deviations.append(abs(Fraction(float(d.values[i, j])) - truth))
        assert 0 < max(deviations) <= Fraction(d.error)
        assert d.error < (1e-4 if dtype == "float32" else 1e-10)


@given(st.floats(1e-3, 1 - 1e-9), st.integers(0, 60))
@settings(deadline=None, max_examples=scaled(150))
def test_powers_are_bounded_from_above(discount: float, exponent: int) -> None:
    bounds = bound_powers(discount, exponent)
    exact_power = Fraction(discount) ** exponent
    assert exact_power <= Fraction(float(bounds[-1])) <= exact_power * (1 + Fraction(1, 2**40))


def test_bounds_of_powers_decrease_and_hold_below_the_normal_numbers() -> None:
    bounds = bound_powers(0.5, 1200)
    assert (np.diff(bounds) <= 0).all()
    assert all(Fraction(float(bounds[k])) >= Fraction(1, 2**k) for k in (1022, 1073, 1074, 1200))


def vectors(n: int = 30, **changes: Any) -> Transitions:
    """Steps of one truncated episode with distinct observations and rewards from 0 to 2."""
    x = np.arange(n + 1.0)[:, None]
    fields: dict[str, Any] = {
        "observations": x[:-1],
        "actions": np.zeros(n, int),
        "rewards": np.arange(n) % 3,
        "next_observations": x[1:],
        "terminated": np.zeros(n, bool),
    }
    return Transitions(**(fields | changes))


def test_laws() -> None:
    rng = np.random.default_rng(1)
    data = vectors(60, rewards=rng.normal(size=60).clip(-1, 1), truncated=np.arange(60) % 17 == 16)
    d = exact.recorded(data, discount=0.9, reward_range=(-1, 1)).values
    assert (d == d.T).all()
    assert not d.diagonal().any()
    assert (d[:, None, :] <= d[:, :, None] + d[None, :, :] + 1e-12).all()


def test_metadata_and_names() -> None:
    cut = np.arange(30) == 9
    d = exact.recorded(vectors(truncated=cut), discount=0.5, tol=0.1, reward_range=(0, 2))
    assert d.metadata["recorded_steps"] == 30
    assert d.metadata["step_ranges"] == [[0, 6], [10, 26]]
    assert d.metadata["left_out"] == 8
    assert d.metadata["without_successor"] == [5, 21]
    assert d.metadata["reward_range"] == [0.0, 2.0]
    assert d.names is not None
    assert (d.names[5], d.names[6]) == ("episode 0, step 5", "episode 1, step 0")
    assert d.kind == "on_policy"
    assert d.mdp.R[:, 0].tolist() == [k % 3 for k in [*range(6), *range(10, 26)]]


def test_discount_0_needs_no_range() -> None:
    d = exact.recorded(vectors(), discount=0.0)
    assert d.error < 1e-14
    assert d(1, 3) == 1.0


def test_constant_rewards_without_an_end_are_at_distance_0() -> None:
    d = exact.recorded(vectors(rewards=np.ones(30)), reward_range=(1, 1))
    assert d.values.max() < 1e-300
    assert d.error < 1e-300


def test_a_missing_range_raises() -> None:
    with pytest.raises(InputError, match=r"reward_range is missing: 1 episode .* from 0 to 2"):
        exact.recorded(vectors())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"reward_range": (0, 1)}, "rewards from 0 to 2 were recorded"),
        ({"reward_range": (2, 0)}, r"exact.recorded: reward_range is \(2, 0\)"),
        ({"reward_range": 3}, "two finite numbers"),
        ({"discount": 1.0}, "below 1"),
        ({"tol": 0}, "exact.recorded: tol is 0"),
        ({"dtype": "int32"}, "exact.recorded: dtype is int32"),
        ({"tol": 1e-9, "reward_range": (0, 2)}, r"needs about 2,5\d\d recorded steps.* has 30 "),
        ({"reward_range": (-1e308, 1e308)}, "float64 cannot hold"),
        ({"reward_range": (0, 1e37), "dtype": "float32"}, "float32 cannot hold"),
    ],
)
def test_bad_arguments_raise(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        exact.recorded(vectors(), **options)


def test_the_suggested_tol_is_accepted() -> None:
    with pytest.raises(InputError, match="or allow") as caught:
        exact.recorded(vectors(), tol=1e-9, reward_range=(0, 2))
    allowed = float(str(caught.value).partition("or allow ")[2].partition(" ")[0])
    d = exact.recorded(vectors(), tol=allowed, reward_range=(0, 2))
    assert len(d.values) >= 1
    assert d.error <= allowed


def test_other_sources_raise() -> None:
    mdp = MDP.deterministic([[0]], [[1.0]], discount=0.9)
    with pytest.raises(InputError, match="are MDP and must be Transitions"):
        exact.recorded(mdp)  # type: ignore[arg-type]


def test_a_tol_below_rounding_is_not_converged() -> None:
    data = vectors(terminated=np.arange(30) == 29)
    with pytest.raises(NotConverged, match=r"float32 proves .* or dtype='float64'") as caught:
        exact.recorded(data, tol=1e-9, dtype="float32")
    assert isinstance(caught.value.partial, Distance)
    assert caught.value.partial.error > 1e-9
    assert exact.recorded(data, tol=1e-9).error <= 1e-9
    with pytest.raises(NotConverged, match="larger tol"):
        exact.recorded(data, tol=1e-16)


def test_memory_is_checked_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_memory, "ALWAYS_AVAILABLE_BYTES", 0)
    monkeypatch.setattr(_memory, "available_memory", lambda: 7_000.0)
    with pytest.raises(InsufficientMemory, match=r"30 steps need .*dtype='float32'"):
        exact.recorded(vectors(), reward_range=(0, 2))


def test_steps_out_of_order_raise() -> None:
    with pytest.raises(InputError, match="step 0 does not lead to step 1"):
        exact.recorded(vectors().sample(10, seed=0), reward_range=(0, 2))
    ids = Transitions([0, 1], [0, 0], [0, 0], [2, 0], [False, False])
    with pytest.raises(InputError, match="step 0 does not lead to step 1"):
        exact.recorded(ids, reward_range=(0, 2))


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"actions": [0, 0, 1, 0]}, "actions"),
        ({"rewards": [0, 1, 2, 1]}, "rewards"),
        ({"next_observations": [1, 2, 2, 0], "observations": [0, 1, 0, 2]}, "successors"),
        ({"terminated": [False, True, True, True]}, "successors"),
    ],
)
def test_stochastic_ids_raise(changes: dict[str, Any], name: str) -> None:
    fields: dict[str, Any] = {
        "observations": [0, 1, 0, 1],
        "actions": [0, 0, 0, 0],
        "rewards": [0, 1, 0, 1],
        "next_observations": [1, 2, 1, 2],
        "terminated": [False, True, False, True],
    }
    exact.recorded(Transitions(**fields))
    with pytest.raises(InputError, match=rf"steps 0 and 2 have different {name} in state 0"):
        exact.recorded(Transitions(**(fields | changes)), reward_range=(0, 2))


def test_stochastic_observations_warn() -> None:
    x = np.array([[0.0], [1.0], [0.0], [2.0]])
    following = np.array([[1.0], [9.0], [2.0], [9.0]])
    data = Transitions(x, [0] * 4, [0, 1, 0, 1], following, [False, True, False, True])
    with pytest.warns(StochasticDataWarning, match="steps 0 and 2 .* different successors"):
        exact.recorded(data)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        exact.recorded(vectors(), reward_range=(0, 2))


def test_files_keep_everything(tmp_path: Path) -> None:
    d = exact.recorded(vectors(), discount=0.5, tol=0.1, reward_range=(0, 2))
    d.save(tmp_path / "d.npz")
    again = Distance.load(tmp_path / "d.npz")
    np.testing.assert_array_equal(again.values, d.values)
    assert (again.error, again.names, again.metadata) == (d.error, d.names, d.metadata)
    assert str(again.explain(0, 1)) == str(d.explain(0, 1))
    assert again.nearest(0, 2, names=True) == d.nearest(0, 2, names=True)
    assert again.to_frame().loc["episode 0, step 0", "episode 0, step 1"] == d(0, 1)


@pytest.mark.parametrize("found", [[99], [-1], ["0"], 3, [True]])
def test_metadata_of_successors_is_validated(found: Any) -> None:
    mdp = MDP.deterministic([[0]], [[1.0]], discount=0.9)
    with pytest.raises(InputError, match="without_successor"):
        Distance(np.zeros((1, 1)), 0.0, "on_policy", mdp, None, {"without_successor": found})


def test_explanations_end_where_the_matrix_does() -> None:
    d = exact.recorded(vectors(), discount=0.5, tol=0.1, reward_range=(0, 2))
    last = len(d.values) - 1
    why = d.explain(0, 1)
    assert why.total == pytest.approx(d(0, 1), abs=1e-9)
    assert why.value_gap is None
    assert why.steps[-1].next_states == (last - 1, last)
    assert f"from episode 0, step {last} on, not in the matrix" in str(why)
    assert "is not followed by a step of the matrix" in str(d.explain(0, last))
    whole = exact.recorded(vectors(terminated=np.arange(30) == 29), discount=0.5)
    assert whole.explain(0, 1).value_gap is not None
    assert "then both are in end" in str(whole.explain(0, 1))


def test_steps_without_successors_certify_no_mdp() -> None:
    d = exact.recorded(vectors(), discount=0.5, reward_range=(0, 2))
    assert certify_error(d) == np.inf
    whole = exact.recorded(vectors(terminated=np.arange(30) == 29), discount=0.5)
    assert certify_error(whole) == whole.error
    assert "have no successor in the matrix" in explorer.render_notebook(d)
