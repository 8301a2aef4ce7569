"""Gymnasium's toy-text tables: against facts about the games, their own steps, and slow values."""

from __future__ import annotations

import importlib
import warnings
from typing import Any

import gymnasium
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bisimetric import exact, planning, worlds
from bisimetric.errors import ExpectedRewardWarning, InputError, MissingActionsWarning
from bisimetric.mdp import MDP
from tests.property_testing import scaled


class Table(gymnasium.Env[Any, Any]):
    """An environment that has nothing but a transition table."""

    def __init__(self, P: Any, actions: int = 1, starts: list[float] | None = None) -> None:
        self.P = P
        self.action_space = gymnasium.spaces.Discrete(actions)
        if starts is not None:
            self.initial_state_distrib = np.array(starts)


def quiet(environment: Any, **options: Any) -> MDP:
    """The import, without its notes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExpectedRewardWarning)
        warnings.simplefilter("ignore", MissingActionsWarning)
        return worlds.from_gymnasium(environment, **options)


def values_of_play(P: dict[int, Any], discount: float, sweeps: int) -> np.ndarray[Any, Any]:
    """V(s) = max_a sum p (r + discount V(n) unless the episode ends), looped over the raw table."""
    V = np.zeros(len(P))
    for _ in range(sweeps):
        V = np.array(
            [
                max(
                    sum(p * (r + (0 if ends else discount * V[n])) for p, n, r, ends in outcomes)
                    for outcomes in choices.values()
                )
                for choices in P.values()
            ]
        )
    return V


@pytest.mark.parametrize(
    ("name", "options", "states", "actions", "deterministic"),
    [
        ("FrozenLake-v1", {"is_slippery": False}, 16, 4, True),
        ("FrozenLake-v1", {"map_name": "8x8"}, 64, 4, False),
        ("FrozenLake8x8-v1", {}, 64, 4, False),
        ("CliffWalking-v1", {}, 48, 4, True),
        ("CliffWalking-v1", {"is_slippery": True}, 48, 4, False),
        ("Taxi-v4", {}, 501, 6, True),
        ("Taxi-v4", {"is_rainy": True}, 501, 6, False),
    ],
)
def test_sizes_and_values_of_the_games(
    name: str, options: dict[str, Any], states: int, actions: int, deterministic: bool
) -> None:
    mdp = quiet(name, discount=0.9, **options)
    assert mdp.R.shape == (states, actions)
    assert mdp.is_deterministic == deterministic
    assert mdp.available is None
    P = gymnasium.make(name, **options).unwrapped.P  # type: ignore[attr-defined]
    living = [s for s in range(len(P)) if np.ptp(mdp.R[s]) or mdp.R[s].any() or not stays(mdp, s)]
    V = planning.optimal_values(mdp, tol=1e-9).values
    np.testing.assert_allclose(V[living], values_of_play(P, 0.9, 300)[living], atol=1e-8)


def stays(mdp: MDP, state: int) -> bool:
    """Whether a state is absorbing with reward 0."""
    rows = mdp.P[state * mdp.num_actions : (state + 1) * mdp.num_actions]
    return bool((rows[:, [state]].toarray() == 1).all() and not mdp.R[state].any())


def test_ends_are_absorbing_and_pay_nothing() -> None:
    lake = worlds.load("FrozenLake-v1", is_slippery=False)
    holes_and_goal = {"1,1", "1,3", "2,3", "3,0", "3,3"}
    assert {lake.state_name(s) for s in range(16) if stays(lake, s)} == holes_and_goal
    cliff = worlds.load("CliffWalking-v1")
    assert [cliff.state_name(s) for s in range(48) if stays(cliff, s)] == ["3,11"]
    taxi = worlds.load("Taxi-v4")
    assert [taxi.state_name(s) for s in range(501) if stays(taxi, s)] == ["end"]


def test_frozen_lake_in_words() -> None:
    mdp = worlds.from_gymnasium("FrozenLake-v1", is_slippery=False)
    assert mdp.actions == ("left", "down", "right", "up")
    assert mdp.names is not None
    assert mdp.names[:5] == ("0,0", "0,1", "0,2", "0,3", "1,0")
    assert mdp.positions is not None
    assert mdp.positions[mdp.state("2,3")].tolist() == [2, 3]
    s, right = mdp.state("3,2"), 2
    assert mdp.state_name(int(mdp.next_state[s, right])) == "3,3"
    assert mdp.R[s, right] == 1
    assert mdp.R.sum() == 1
    assert mdp.discount == 0.99


def test_taxi_in_words() -> None:
    mdp = worlds.from_gymnasium(gymnasium.make("Taxi-v4"), discount=0.5)
    assert mdp.discount == 0.5
    assert mdp.actions == ("south", "north", "east", "west", "pick up", "drop off")

    def after(state: str, action: str) -> tuple[str, float]:
        s, a = mdp.state(state), (mdp.actions or ()).index(action)
        return mdp.state_name(int(mdp.next_state[s, a])), float(mdp.R[s, a])

    assert after("taxi 0,0 passenger R to G", "pick up") == ("taxi 0,0 passenger aboard to G", -1)
    assert after("taxi 0,4 passenger aboard to G", "drop off") == ("end", 20)
    assert after("taxi 0,0 passenger aboard to G", "drop off") == ("taxi 0,0 passenger R to G", -1)
    assert after("taxi 0,1 passenger R to G", "east") == ("taxi 0,1 passenger R to G", -1)
    assert after("end", "drop off") == ("end", 0)
    assert mdp.positions is not None
    assert len(np.unique(mdp.positions, axis=0)) == 501


def test_a_distance_on_frozen_lake() -> None:
    mdp = worlds.load("FrozenLake-v1", is_slippery=False, discount=0.9)
    d = exact.bisimulation(mdp)
    assert d("1,1", "3,3") <= d.error  # two ends
    assert d("3,2", "3,3") > 1 - d.error  # beside the goal, and the goal


def test_expected_rewards_warn_once_at_the_caller() -> None:
    with pytest.warns(
        ExpectedRewardWarning, match="FrozenLake-v1: the reward depends on the succ"
    ) as said:
        mdp = worlds.load("FrozenLake-v1")
    assert [each.filename for each in said] == [__file__]
    # From beside the goal, the goal is one of three equally likely cells.
    np.testing.assert_allclose(mdp.R[mdp.state("3,2")], [0, 1 / 3, 1 / 3, 1 / 3])
    assert worlds.load("Taxi-v4", is_rainy=True).R.min() == -10  # pays by state and action: no note


class TestEnds:
    def test_a_state_that_also_continues_needs_a_separate_terminal_state(self) -> None:
        # 0 -> 1 continues, 1 -> 0 terminates: 0 is entered by termination and is also the start.
        P = {0: {0: [(1.0, 1, 5.0, False)]}, 1: {0: [(1.0, 0, 7.0, True)]}}
        mdp = worlds.from_gymnasium(Table(P, starts=[1, 0]))
        assert mdp.next_state.tolist() == [[1], [2], [2]]
        assert mdp.R.tolist() == [[5], [7], [0]]
        assert mdp.names == ("0", "1", "end")

    def test_an_end_that_would_go_on_paying_does_not(self) -> None:
        P = {0: {0: [(1.0, 1, 1.0, True)]}, 1: {0: [(1.0, 1, 9.0, True)]}}
        mdp = worlds.from_gymnasium(Table(P, starts=[1, 0]))
        assert mdp.next_state.tolist() == [[1], [1]]
        assert mdp.R.tolist() == [[1], [0]]

    def test_an_end_may_loop_without_saying_that_it_ends(self) -> None:
        P = {0: {0: [(1.0, 1, 1.0, True)]}, 1: {0: [(1.0, 1, 0.0, False)]}}
        for starts in ([1.0, 0.0], None):
            mdp = worlds.from_gymnasium(Table(P, starts=starts))
            assert mdp.next_state.tolist() == [[1], [1]]

    def test_a_bandit_that_does_not_say_where_it_starts(self) -> None:
        P = {0: {0: [(1.0, 0, 1.0, True)], 1: [(1.0, 0, 3.0, True)]}}
        mdp = worlds.from_gymnasium(Table(P, actions=2))
        assert mdp.next_state.tolist() == [[1, 1], [1, 1]]
        assert mdp.R.tolist() == [[1, 3], [0, 0]]

    def test_one_state_entered_both_ways(self) -> None:
        P = {
            0: {0: [(0.5, 1, 0.0, True), (0.5, 1, 0.0, False)]},
            1: {0: [(1.0, 0, 1.0, False)]},
        }
        mdp = worlds.from_gymnasium(Table(P))
        assert mdp.num_states == 3
        assert mdp.P[[0]].toarray().tolist() == [[0, 0.5, 0.5]]

    def test_impossible_terminations_have_no_effect(self) -> None:
        P = {0: {0: [(1.0, 0, 1.0, False), (0.0, 0, 9.0, True)]}}
        mdp = worlds.from_gymnasium(Table(P))
        assert mdp.R.tolist() == [[1.0]]

    def test_states_that_lack_actions(self) -> None:
        P = {
            0: {0: [(1.0, 1, 0.0, False)], 1: [(1.0, 0, 0.0, False)]},
            1: {1: [(1.0, 0, 2.0, False)]},
        }
        with pytest.warns(MissingActionsWarning, match="1 of 2 states lack some actions"):
            mdp = worlds.from_gymnasium(Table(P, actions=2))
        assert mdp.available is not None
        assert mdp.available.tolist() == [[True, True], [False, True]]


@st.composite
def tables(draw: st.DrawFn) -> dict[int, Any]:
    """Small tables with stochastic outcomes, some of which end the episode."""
    states, actions = draw(st.integers(1, 4)), draw(st.integers(1, 2))
    outcome = st.tuples(
        st.integers(1, 4), st.integers(0, states - 1), st.integers(-2, 2), st.booleans()
    )
    table: dict[int, Any] = {}
    for s in range(states):
        table[s] = {}
        for a in range(actions):
            drawn = draw(st.lists(outcome, min_size=1, max_size=3))
            total = sum(weight for weight, *_ in drawn)
            table[s][a] = [(weight / total, *rest) for weight, *rest in drawn]
    return table


@settings(deadline=None, max_examples=scaled(100))
@given(tables())
def test_values_are_those_of_play(table: dict[int, Any]) -> None:
    # Every state may be a start, so none is taken for an end: each ending leads to one more.
    starts = [1.0] * len(table)
    mdp = quiet(Table(table, actions=len(table[0]), starts=starts), discount=0.5)
    V = planning.optimal_values(mdp, tol=1e-10).values
    np.testing.assert_allclose(V[: len(table)], values_of_play(table, 0.5, 60), atol=1e-9)
    assert mdp.num_states - len(table) in (0, 1)
    if mdp.num_states > len(table):
        assert V[-1] == 0


class TestRefused:
    @pytest.mark.parametrize(
        ("name", "options", "message"),
        [
            ("CartPole-v1", {}, "no transition table P.*enumerate_environment"),
            ("Taxi-v3", {}, "no environment 'Taxi-v3'; there is Taxi-v4"),
            ("FrozenLak-v1", {}, "did you mean 'FrozenLake"),
            ("FrozenLake", {}, "did you mean 'FrozenLake"),
            ("Zzz-v1", {}, "no environment 'Zzz-v1' in Gymnasium"),
            ("nowhere:Zzz-v1", {}, "nowhere:Zzz-v1: cannot be made .*nowhere"),
            ("FrozenLake-v1", {"rows": 3}, "unexpected keyword argument 'rows'"),
            ("FrozenLake-v1", {"map_name": "9x9"}, "cannot be made .*9x9"),
            ("FrozenLake-v1", {"discount": 1.0}, "discount is 1.0"),
            ("Taxi-v4", {"fickle_passenger": True}, "leaves the fickle passenger out"),
        ],
    )
    def test_by_name(self, name: str, options: dict[str, Any], message: str) -> None:
        with pytest.raises(InputError, match=message):
            quiet(name, **options)

    @pytest.mark.parametrize(
        ("P", "message"),
        [
            ({0: {0: [(1.0, 3, 0.0, False)]}}, "holds state 3; states must lie from 0 to 0"),
            ({0: {2: [(1.0, 0, 0.0, False)]}}, "holds action 2"),
            ({0: {0: [(1.0, 0.5, 0.0, False)]}}, "no table"),
            ({0: {0: [(1.0, 0)]}}, "no table"),
            ({1: {0: [(1.0, 1, 0.0, False)]}}, "numbered from 0"),
            ({0: {0: []}}, "each have an outcome"),
            ({0: {0: [(0.7, 0, 0.0, False)]}}, r"P\[0, 0\] sums to 0.7"),
            ({0: {0: [(0.0, 0, 0.0, False)]}}, "no available action"),
            (7, "no table"),
        ],
    )
    def test_tables_that_are_none(self, P: Any, message: str) -> None:
        with pytest.raises(InputError, match=message):
            quiet(Table(P))

    def test_not_an_environment(self) -> None:
        with pytest.raises(InputError, match="dict is no Gymnasium environment"):
            worlds.from_gymnasium({})
        with pytest.raises(InputError, match="option 'map_name' is for environments given by id"):
            worlds.from_gymnasium(gymnasium.make("FrozenLake-v1"), map_name="8x8")

    def test_gymnasium_is_missing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def missing(name: str) -> Any:
            raise ImportError(name)

        monkeypatch.setattr(importlib, "import_module", missing)
        with pytest.raises(InputError, match=r"pip install 'bisimetric\[worlds\]'"):
            worlds.load("FrozenLake-v1")
        with pytest.raises(InputError, match="there is no world 'frozen'"):
            worlds.load("frozen")
