"""`uses.bonus`: the wrapper around environments of Gymnasium and MiniGrid."""

from __future__ import annotations

import copy
import dataclasses
import importlib
import math
import pickle
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.utils.passive_env_checker import (
    env_reset_passive_checker,
    env_step_passive_checker,
)
from numpy.typing import NDArray

from bisimetric import MDP, Distance, InputError, datasets, exact, planning, sampled, uses, worlds
from bisimetric.errors import ExpectedRewardWarning
from bisimetric.uses.exploration.environments import MDPEnvironment

ROOM = "MiniGrid-DoorKey-5x5-v0"


@pytest.fixture(scope="module")
def lake() -> Distance:
    return exact.bisimulation(worlds.load("FrozenLake-v1", is_slippery=False, discount=0.9))


@pytest.fixture(scope="module")
def room() -> Distance:
    return exact.bisimulation(worlds.load(ROOM, seed=0, discount=0.9))


def steps(environment: Any, actions: list[int], seed: int = 0) -> list[Any]:
    """What a walk returns, starting again where an episode is over."""
    found = [environment.reset(seed=seed)]
    for action in actions:
        found.append(environment.step(action))
        if found[-1][2] or found[-1][3]:
            found.append(environment.reset(seed=seed))
    return found


def actions(count: int, size: int, seed: int = 0) -> list[int]:
    return [int(each) for each in np.random.default_rng(seed).integers(size, size=count)]


def test_a_step_pays_the_bonus_of_where_it_leads(lake: Distance) -> None:
    wrapped = uses.bonus("FrozenLake-v1", lake, bonus_scale=0.5, is_slippery=False)
    assert isinstance(wrapped, gymnasium.Wrapper)
    visits = uses.VisitCounts.from_distance(lake)
    for found in steps(wrapped, actions(200, 4)):
        bonus, visits = visits.visit(int(found[0]))
        if len(found) == 5:
            _, reward, _, _, info = found
            assert info["bonus"] == 0.5 * bonus
            assert reward == info["reward"] + info["bonus"]
            assert "prob" in info, "what the environment tells stays"
        else:
            assert "bonus" not in found[1], "a reset is a visit, and pays nothing"
    assert (wrapped.visits.counts == visits.counts).all()
    assert wrapped.visits.bonuses == pytest.approx(visits.bonuses)


def test_without_a_scale_rewards_are_as_they_are(lake: Distance) -> None:
    plain = gymnasium.make("FrozenLake-v1", map_name="4x4")
    wrapped = uses.bonus(gymnasium.make("FrozenLake-v1", map_name="4x4"), lake, bonus_scale=0)
    for one, other in zip(
        steps(plain, actions(300, 4)), steps(wrapped, actions(300, 4)), strict=True
    ):
        assert one[:4] == other[:4] if len(one) == 5 else one == other


def test_the_same_seed_gives_the_same_run_and_visits_persist(lake: Distance) -> None:
    runs = [uses.bonus("FrozenLake-v1", lake) for _ in range(2)]
    first, second = (steps(each, actions(100, 4)) for each in runs)
    assert first == second
    again = steps(runs[0], actions(100, 4))
    both = [(a[1], b[1]) for a, b in zip(first, again, strict=True) if len(a) == 5]
    assert all(later < before for before, later in both), "visits stay from episode to episode"
    runs[0].visits = uses.VisitCounts.from_distance(lake)
    assert steps(runs[0], actions(100, 4)) == first, "begun again"


def test_it_resumes_from_a_pickle_and_from_a_copy(lake: Distance) -> None:
    wrapped = uses.bonus("FrozenLake-v1", lake)
    steps(wrapped, actions(50, 4))
    kept = pickle.loads(pickle.dumps(wrapped))
    other = copy.deepcopy(wrapped)
    wanted = steps(wrapped, actions(50, 4, seed=1))
    assert steps(kept, actions(50, 4, seed=1)) == wanted
    assert steps(other, actions(50, 4, seed=1)) == wanted


def test_gymnasium_checks_pass(lake: Distance) -> None:
    wrapped = uses.bonus("FrozenLake-v1", lake)
    env_reset_passive_checker(wrapped, seed=0)
    for action in actions(5, 4):
        _, reward, terminated, *_ = env_step_passive_checker(wrapped, action)
        assert isinstance(reward, float)
        if terminated:
            env_reset_passive_checker(wrapped)
    limited = gymnasium.wrappers.TimeLimit(wrapped, 3)
    recorded = gymnasium.wrappers.RecordEpisodeStatistics(limited)
    recorded.reset(seed=3)
    infos = [recorded.step(0)[4] for _ in range(3)]
    assert infos[-1]["episode"]["r"] == pytest.approx(sum(each["bonus"] for each in infos))


def test_a_distance_from_other_data() -> None:
    """Steps of a room, without the model: the same names, and an end."""
    data = datasets.rollout("MiniGrid-Empty-5x5-v0", steps=3_000, seed=0, environment_seed=0)
    d = sampled.bisimulation(data, discount=0.9, seed=0, steps=2_000)
    assert d.mdp.state_name(d.mdp.num_states - 1) == "end"
    wrapped = uses.bonus(gymnasium.make("MiniGrid-Empty-5x5-v0"), d)
    found = steps(wrapped, [2, 2, 1, 2, 2, *actions(40, 3)])
    assert found[5][2], "the goal is two steps ahead and two to the right"
    assert wrapped.visits.counts[-1] >= 1
    assert wrapped.visits.counts.sum() == len(found)


def test_a_vector_of_them(lake: Distance) -> None:
    several = gymnasium.make_vec(
        "FrozenLake-v1", num_envs=2, wrappers=[lambda each: uses.bonus(each, lake)]
    )
    several.reset(seed=0)
    _, rewards, _, _, info = several.step(np.array([0, 1]))
    assert rewards == pytest.approx(info["reward"] + info["bonus"])
    with pytest.raises(InputError, match=r"not a single .* gymnasium\.make_vec"):
        uses.bonus(several, lake)
    several.close()


@pytest.mark.slow
def test_a_minigrid_environment_matches_its_enumeration(room: Distance) -> None:
    """The names of a real room find the states that steps in its MDP lead to, the end included."""
    wrapped = uses.bonus(gymnasium.make(ROOM), room)
    greedy = planning.greedy_policy(room.mdp)
    visits = uses.VisitCounts.from_distance(room)
    for seed in range(3):
        wrapped.reset(seed=0)
        state = 0
        _, visits = visits.visit(state)
        chosen = actions(40, 7, seed=seed) if seed else []
        for number in range(60):
            action = chosen[number] if number < len(chosen) else int(greedy[state])
            _, _, terminated, _, info = wrapped.step(action)
            state = int(room.mdp.next_state[state, action])
            bonus, visits = visits.visit(state)
            assert info["bonus"] == bonus
            assert terminated == (room.mdp.state_name(state) == "end")
            if terminated:
                break
        else:
            pytest.fail("the goal was not reached")
    assert (wrapped.visits.counts == visits.counts).all()


def test_another_grid_raises() -> None:
    name = "MiniGrid-FourRooms-v0"
    d = exact.bisimulation(worlds.load(name, seed=0, discount=0.5))
    wrapped = uses.bonus(gymnasium.make(name), d)
    wrapped.reset(seed=0)
    wrapped.reset(seed=0)
    with pytest.raises(InputError, match="grid differs from that of the first reset"):
        wrapped.reset(seed=1)
    other = uses.bonus(gymnasium.make(name), d)
    with pytest.raises(InputError, match=r"none of the .* states of d|contradicts the MDP of d"):
        steps(other, actions(2_000, 3), seed=1)
    turned = d.mdp.replace(P=d.mdp.P[np.arange(d.mdp.R.size).reshape(-1, 7)[:, ::-1].ravel()])
    wrong = dataclasses.replace(d, mdp=turned)
    with pytest.raises(InputError, match=r"action left led from .* contradicts the MDP of d"):
        steps(uses.bonus(gymnasium.make(name), wrong), [0])
    tiny = exact.bisimulation(worlds.load("MiniGrid-Empty-5x5-v0", seed=0, discount=0.5))
    with pytest.raises(InputError, match="none of the 33 states of d"):
        uses.bonus(gymnasium.make(name), tiny).reset(seed=0)


def test_the_terminal_state_is_the_last_state() -> None:
    taxi = worlds.load("Taxi-v4", discount=0.5)
    table = 1 - np.eye(taxi.num_states)
    d = Distance(table, math.inf, "bisimulation", taxi)
    wrapped = uses.bonus("Taxi-v4", d)
    wrapped.reset(seed=0)
    wrapped.unwrapped.s = wrapped.unwrapped.encode(0, 0, 4, 0)  # type: ignore[attr-defined]
    *_, terminated, _, _ = wrapped.step(5)
    assert terminated
    assert wrapped.visits.counts[taxi.state("end")] == 1


def test_states_by_a_function(lake: Distance) -> None:
    pole = gymnasium.make("CartPole-v1")
    names = lake.mdp.names or ()
    wrapped = uses.bonus(pole, lake, state_of=lambda environment, seen: names[int(seen[0] > 0) + 2])
    found = steps(wrapped, actions(30, 2))
    met = np.flatnonzero(wrapped.visits.counts)
    assert set(met.tolist()) <= {2, 3}
    assert wrapped.visits.counts.sum() == len(found)
    for which, words in (
        ("lost", "is in state 'lost'"),
        (16, "is in state 16"),
        ([], "state \\[\\]"),
    ):
        lost = uses.bonus(pole, lake, state_of=lambda *_, which=which: which)
        with pytest.raises(InputError, match=f"CartPole-v1: .*{words}.* use a distance of this"):
            lost.reset(seed=0)
    with pytest.raises(InputError, match="state_of is 3 and must be a function"):
        uses.bonus(pole, lake, state_of=3)  # type: ignore[arg-type]


class Plane:
    """The distance of observations that a network would have learned."""

    def table(self, x: NDArray[Any], y: NDArray[Any]) -> Any:
        return np.abs(x[:, None] - y[None]).sum(axis=2)


def test_observations_are_stored() -> None:
    wrapped = uses.bonus("CartPole-v1", Plane(), radius=1.0, max_observations=50)
    found = steps(wrapped, actions(200, 2))
    assert sum(len(each) == 5 for each in found) == 200
    ended = sum(each[2] for each in found if len(each) == 5)
    assert wrapped.visits.terminal_visits == ended > 0
    assert wrapped.visits.counts.sum() + ended == len(found)
    assert len(wrapped.visits.counts) <= 50
    assert 0 < found[-2][4]["bonus"] < 1
    again = pickle.loads(pickle.dumps(wrapped))
    assert steps(again, actions(20, 2)) is not None
    with pytest.raises(InputError, match="radius is required for a distance of observations"):
        uses.bonus("CartPole-v1", Plane())
    with pytest.raises(InputError, match="observations without states; omit state_of"):
        uses.bonus("CartPole-v1", Plane(), radius=1.0, state_of=lambda *_: 0)


def test_mismatched_arguments_raise(lake: Distance) -> None:
    with pytest.raises(InputError, match="FrozenLake-v1: has 64 states, and d has 16"):
        uses.bonus("FrozenLake-v1", lake, map_name="8x8")
    with pytest.raises(InputError, match=r"its observations are Box.* pass state_of"):
        uses.bonus("CartPole-v1", lake)
    for scale in (-0.1, math.nan, "much"):
        with pytest.raises(InputError, match=r"bonus_scale is .* and must be a number, at least 0"):
            uses.bonus("FrozenLake-v1", lake, bonus_scale=scale)  # type: ignore[arg-type]
    broken = np.full((16, 16), math.nan)
    with pytest.raises(InputError, match=r"uses\.bonus: .*matrix has nan at \[0, 0\]"):
        uses.bonus("FrozenLake-v1", broken)
    with pytest.raises(InputError, match="there is no environment 'Lake-v1'"):
        uses.bonus("Lake-v1", lake)
    with pytest.raises(InputError, match="ndarray is no Gymnasium environment"):
        uses.bonus(np.eye(16), lake)


def test_without_gymnasium_the_error_names_the_extra(
    lake: Distance, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(package: str) -> Any:
        raise ImportError(package)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(InputError, match=r"uses\.bonus: gymnasium is not installed; pip install"):
        uses.bonus("FrozenLake-v1", lake)


def test_an_mdp_is_an_environment_like_others() -> None:
    with pytest.warns(ExpectedRewardWarning):
        mdp = worlds.load("FrozenLake-v1", discount=0.9)
    plain = MDPEnvironment(mdp, max_episode_steps=50)
    check_env(plain, skip_render_check=True)
    counts = np.zeros((16, 4, 16))
    here, _ = plain.reset(seed=0)
    for action in actions(20_000, 4):
        there, reward, terminated, truncated, _ = plain.step(action)
        counts[here, action, there] += 1
        assert reward == mdp.R[here, action]
        assert terminated == (there in (5, 7, 11, 12, 15)), "the holes and the goal are ends"
        here = plain.reset()[0] if terminated or truncated else there
    often = counts.sum(axis=2) > 200
    assert often.sum() > 8
    shares = counts[often] / counts[often].sum(axis=1, keepdims=True)
    assert np.abs(shares - mdp.P.toarray().reshape(16, 4, 16)[often]).max() < 0.12
    with pytest.raises(InputError, match="start is 3,3, a terminal state"):
        MDPEnvironment(mdp, "3,3")
    with pytest.raises(InputError, match="max_episode_steps is 0 and must be a whole number"):
        MDPEnvironment(mdp, max_episode_steps=0)


def test_an_episode_is_cut_and_bare_steps_keep_their_meaning() -> None:
    mdp = MDP.deterministic([[1], [0]], [[1.0], [2.0]], discount=0.9)
    walk = MDPEnvironment(mdp, max_episode_steps=2)
    assert walk.reset(seed=0) == (0, {})
    assert walk.step(0) == (1, 1.0, False, False, {})
    assert walk.step(0) == (0, 2.0, False, True, {})


def test_environments_are_named_in_errors() -> None:
    mdp = MDP.deterministic([[1], [0]], [[1.0], [2.0]], discount=0.9)
    with pytest.raises(InputError, match="Environment: has 2 states, and d has 3"):
        uses.bonus(MDPEnvironment(mdp), 1 - np.eye(3))
