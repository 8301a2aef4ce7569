"""Walked-through environments: against their tables, their own episodes, and hidden randomness."""

from __future__ import annotations

from typing import Any

import gymnasium
import minigrid  # registers its environments
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csgraph

from bisimetric import exact, planning, worlds
from bisimetric.errors import InputError
from bisimetric.mdp import MDP
from tests.property_testing import scaled

assert minigrid


class Corridor(gymnasium.Env[Any, Any]):
    """Three cells to the right, with faults on request; reaching the last pays 1 and ends."""

    def __init__(self, fault: str = "") -> None:
        self.fault = fault
        self.action_space = gymnasium.spaces.Discrete(2, start=1)
        self.observation_space = gymnasium.spaces.Discrete(3)
        self.steps = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        self.cell = 0
        return 0, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        self.cell = min(self.cell + 1, 2) if action == 2 else max(self.cell - 1, 0)
        reward = float(self.cell == 2)
        if self.fault == "random":
            reward += self.np_random.random()
        if self.fault == "hidden" and self.cell == 1:
            reward += self.steps
        return self.cell, reward, self.cell == 2, self.steps > 1, {}


class Detour(Corridor):
    """From 0 to 1 at once or by way of 2; 1 waits, and pays only those who made the detour."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict[str, Any]]:
        self.long_way = False
        return super().reset(seed=seed)

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        reward = float(self.cell == 1 and self.long_way)
        self.long_way |= self.cell == 2
        self.cell = 2 if (self.cell, action) == (0, 2) else 1
        return self.cell, reward, False, False, {}


def reachable(mdp: MDP, start: int) -> set[str]:
    order = csgraph.breadth_first_order(
        np_graph(mdp), start, directed=True, return_predecessors=False
    )
    return {mdp.state_name(int(s)) for s in order}


def np_graph(mdp: MDP) -> Any:
    rows = np.repeat(np.arange(mdp.num_states), mdp.num_actions)
    graph = np.zeros((mdp.num_states, mdp.num_states))
    graph[rows, mdp.next_state.ravel()] = 1
    return graph


def test_a_corridor_computed_by_hand() -> None:
    mdp = worlds.enumerate_environment(Corridor(), discount=0.5)
    assert mdp.next_state.tolist() == [[0, 1], [0, 2], [2, 2]]
    assert mdp.R.tolist() == [[0, 0], [0, 1], [0, 0]]
    assert mdp.discount == 0.5
    assert mdp.names is None
    named = worlds.enumerate_environment(Corridor(), state_of=lambda env, cell: f"cell {cell}")
    assert named.names == ("cell 0", "cell 1", "end")
    assert named.discount == 0.99


@pytest.mark.parametrize("name", ["FrozenLake-v1", "CliffWalking-v1"])
def test_enumeration_agrees_with_the_table(name: str) -> None:
    table = worlds.load(name, **({"is_slippery": False} if name == "FrozenLake-v1" else {}))
    columns = 4 if name == "FrozenLake-v1" else 12
    walked = worlds.enumerate_environment(
        gymnasium.make(name, is_slippery=False),
        state_of=lambda _, cell: "{},{}".format(*divmod(int(cell), columns)),
    )
    start = table.state("0,0" if name == "FrozenLake-v1" else "3,0")
    V, W = planning.optimal_values(table).values, planning.optimal_values(walked).values
    living = {each for each in walked.names or () if each != "end"}
    assert walked.state_name(0) == table.state_name(start)
    assert living < reachable(table, start)
    for each in living:
        s, t = walked.state(each), table.state(each)
        np.testing.assert_array_equal(walked.R[s], table.R[t])
        assert abs(W[s] - V[t]) < 1e-5


class TestMiniGrid:
    def test_an_empty_room(self) -> None:
        mdp = worlds.load("MiniGrid-Empty-5x5-v0")
        assert mdp.num_states == 8 * 4 + 1
        assert mdp.actions == ("left", "right", "forward", "pickup", "drop", "toggle", "done")

        def after(state: str, action: str) -> tuple[str, float]:
            s, a = mdp.state(state), (mdp.actions or ()).index(action)
            return mdp.state_name(int(mdp.next_state[s, a])), float(mdp.R[s, a])

        assert mdp.state_name(0) == "1,1 east"
        assert after("1,1 east", "right") == ("1,1 south", 0)
        assert after("1,1 east", "left") == ("1,1 north", 0)
        assert after("1,1 east", "forward") == ("1,2 east", 0)
        assert after("1,1 north", "forward") == ("1,1 north", 0)
        assert after("1,1 south", "forward") == ("2,1 south", 0)
        assert after("3,2 east", "forward") == ("end", 1)
        assert after("2,3 south", "forward") == ("end", 1)
        assert after("end", "forward") == ("end", 0)
        assert mdp.R.sum() == 2

    @pytest.mark.parametrize(
        ("name", "states"),
        [
            ("MiniGrid-Empty-5x5-v0", 33),
            ("MiniGrid-DoorKey-5x5-v0", 261),
            ("MiniGrid-FourRooms-v0", 1037),
            ("MiniGrid-LavaGapS5-v0", 17),
            ("MiniGrid-Unlock-v0", 1025),
        ],
    )
    def test_sizes_names_and_places(self, name: str, states: int) -> None:
        mdp = worlds.load(name)
        assert mdp.num_states == states
        assert mdp.names is not None
        assert mdp.names[-1] == "end"
        assert mdp.positions is not None
        assert len(np.unique(mdp.positions, axis=0)) == states
        assert set(np.unique(mdp.R)) == {0.0, 1.0}

    @settings(deadline=None, max_examples=scaled(30))
    @given(
        name=st.sampled_from(["MiniGrid-DoorKey-5x5-v0", "MiniGrid-LavaGapS5-v0"]),
        seed=st.integers(0, 3),
        actions=st.lists(st.integers(0, 6), max_size=60),
    )
    def test_episodes_follow_the_mdp(self, name: str, seed: int, actions: list[int]) -> None:
        mdp = worlds.load(name, seed=seed)
        environment: Any = gymnasium.make(name).unwrapped
        environment.reset(seed=seed)
        state = 0
        for action in actions:
            _, reward, ended, _, _ = environment.step(action)
            # MiniGrid takes 0.9 of the reward away, little by little, until the time is over.
            late = 1 - 0.9 * environment.step_count / environment.max_steps
            assert mdp.R[state, action] == pytest.approx(reward / late)
            state = int(mdp.next_state[state, action])
            if ended:
                assert mdp.state_name(state) == "end"
                return
            column, row = environment.agent_pos
            facing = ("east", "south", "west", "north")[environment.agent_dir]
            assert mdp.state_name(state).startswith(f"{row},{column} {facing}")
            carried = environment.carrying
            assert ("carrying" in mdp.state_name(state)) == (carried is not None)

    def test_key_and_door_in_words(self) -> None:
        names = worlds.load("MiniGrid-DoorKey-5x5-v0").names or ()
        told = {part for name in names for part in name.split(", ")[1:]}
        assert {"carrying yellow key", "yellow door open", "yellow door closed"} <= told
        assert any(part.startswith("yellow key at ") for part in told)

    def test_the_seed_determines_the_room(self) -> None:
        one, same, other = (worlds.load("MiniGrid-FourRooms-v0", seed=n) for n in (1, "1", 2))
        assert one.names == same.names
        assert one.names != other.names

    def test_a_given_environment_is_not_modified(self) -> None:
        environment: Any = gymnasium.make("MiniGrid-Empty-5x5-v0")
        environment.reset(seed=5)
        before = environment.unwrapped.agent_pos, environment.unwrapped.step_count
        mdp = worlds.enumerate_environment(environment)
        assert mdp.num_states == 33
        assert (environment.unwrapped.agent_pos, environment.unwrapped.step_count) == before
        assert environment.step(0)[0]["image"].shape == (7, 7, 3)

    def test_the_wrappers_of_a_given_environment_count(self) -> None:
        halved = gymnasium.wrappers.TransformReward(
            gymnasium.make("MiniGrid-Empty-5x5-v0"), lambda reward: float(reward) / 2
        )
        assert worlds.enumerate_environment(halved).R.max() == 0.5

    def test_baby_ai(self) -> None:
        mdp = worlds.load("BabyAI-OneRoomS8-v0", max_states=3000)
        assert mdp.state_name(mdp.num_states - 1) == "end"
        assert set(np.unique(mdp.R)) == {0.0, 1.0}

    def test_values_count_the_steps_to_the_goal(self) -> None:
        mdp = worlds.load("MiniGrid-Empty-5x5-v0", discount=0.9)
        V = planning.optimal_values(mdp, tol=1e-9).values
        # Two steps, a turn, and the second of two steps that pays: 0.9 ** 4.
        assert V[mdp.state("1,1 east")] == pytest.approx(0.9**4)
        d = exact.lax(mdp)
        assert d("1,1 east", "1,1 south") <= d.error  # mirror images


class TestErrors:
    def test_random_rewards(self) -> None:
        with pytest.raises(
            InputError, match=r"action 1, taken twice in the same state, paid .* and"
        ):
            worlds.enumerate_environment(Corridor("random"))

    def test_a_state_that_is_too_coarse(self) -> None:
        with pytest.raises(InputError, match="needs a state_of"):
            worlds.enumerate_environment(Corridor("hidden"))
        with pytest.raises(InputError, match="ended the episode only once"):
            worlds.enumerate_environment(Corridor(), state_of=lambda env, cell: "here")

    def test_a_queued_state_is_checked_again(self) -> None:
        with pytest.raises(InputError, match="paid 0 and then 1"):
            worlds.enumerate_environment(Detour())
        told = worlds.enumerate_environment(
            Detour(), state_of=lambda env, _: (env.cell, env.long_way)
        )
        assert told.num_states == 4

    @pytest.mark.parametrize(
        "name", ["MiniGrid-Dynamic-Obstacles-5x5-v0", "FrozenLake-v1", "Blackjack-v1"]
    )
    def test_stochastic_environments(self, name: str) -> None:
        with pytest.raises(InputError, match=f"{name}: action .*the environment is stochastic"):
            worlds.enumerate_environment(name)

    def test_too_many_states(self) -> None:
        with pytest.raises(InputError, match="more than 32 states; raise max_states"):
            worlds.load("MiniGrid-FourRooms-v0", max_states=32)
        with pytest.raises(InputError, match="more than 200 states; raise max_states"):
            worlds.enumerate_environment("CartPole-v1", max_states=200)
        assert worlds.load("MiniGrid-Empty-5x5-v0", max_states=32).num_states == 33

    @pytest.mark.parametrize(
        ("name", "options", "message"),
        [
            ("Pendulum-v1", {}, "its actions are Box.* must be Discrete"),
            ("MiniGrid-Empty-5x5-v0", {"seed": "x"}, "seed is 'x' and must be a whole number"),
            ("MiniGrid-Empty-5x5-v0", {"max_states": 0}, "max_states is 0"),
            ("MiniGrid-Empty-5x5-v0", {"state_of": 3}, "state_of is 3 and must be a function"),
            ("MiniGrid-Empty-5x5-v0", {"rooms": 3}, "unexpected keyword argument 'rooms'"),
            ("MiniGrid-Empty-5x6-v0", {}, "did you mean 'MiniGrid-Empty-"),
            ("minigrid-empty-5x5-v0", {}, "did you mean 'MiniGrid-Empty-"),
        ],
    )
    def test_by_name(self, name: str, options: dict[str, Any], message: str) -> None:
        with pytest.raises(InputError, match=message):
            worlds.enumerate_environment(name, **options)

    def test_environments_that_cannot_be_copied_raise(self) -> None:
        environment = Corridor()
        environment.lock = create_generator()  # type: ignore[attr-defined]
        with pytest.raises(InputError, match="cannot be copied"):
            worlds.enumerate_environment(environment)


def create_generator() -> Any:
    return (each for each in range(3))
