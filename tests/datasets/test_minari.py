"""Minari: every transition against what was put into the data set."""

from __future__ import annotations

import gc
import importlib
import importlib.util
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from bisimetric import datasets, worlds
from bisimetric.errors import InputError

minari: Any = importlib.import_module("minari")

# Minari's writer recommends environments to recover, which no test needs.
pytestmark = [
    pytest.mark.filterwarnings("ignore:`eval_env` is set to None:UserWarning"),
    pytest.mark.filterwarnings("ignore:env_spec is None:UserWarning"),
]

ABOUT = {
    "algorithm_name": "random",
    "author": "nobody",
    "author_email": "nobody@example.org",
    "code_permalink": "https://example.org",
    "description": "a test",
}


class Weather(gymnasium.Env[Any, Any]):
    """Observes a Dict with a part that is discrete; its actions are a Tuple."""

    observation_space = spaces.Dict(wind=spaces.Box(-9, 9, (2,)), sun=spaces.Discrete(3))
    action_space = spaces.Tuple((spaces.Discrete(2), spaces.Box(0, 1, (1,))))

    def __init__(self) -> None:
        self.spec = None

    def observe(self) -> dict[str, Any]:
        wind = self.np_random.normal(size=2).astype(np.float32)
        return {"wind": wind, "sun": np.int64(self.np_random.integers(3))}

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self.observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation = self.observe()
        return observation, float(observation["wind"][0]), bool(observation["sun"] == 2), False, {}


@pytest.fixture(autouse=True)
def _own_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))


Recorded = list[list[tuple[Any, ...]]]
"""Episodes of steps: observation, action, reward, next observation, terminated, truncated."""


def simulate(environment: Any, steps: int) -> Recorded:
    """Random steps; where the recording stops, the last episode is unfinished.

    Each episode has its own seed: Minari's recorder draws one from the operating system for a reset
    without a seed.
    """
    environment.action_space.seed(1)
    observation, _ = environment.reset(seed=1)
    recorded: Recorded = [[]]
    for number in range(steps):
        action = environment.action_space.sample()
        following, reward, ended, cut, _ = environment.step(action)
        recorded[-1].append((observation, action, reward, following, ended, cut))
        observation = following
        if (ended or cut) and number < steps - 1:
            observation, _ = environment.reset(seed=2 + number)
            recorded.append([])
    return recorded


def parts(space: Any, values: list[Any]) -> Any:
    """Values of a space as Minari's buffers hold them, part by part."""
    if isinstance(space, spaces.Dict):
        return {name: parts(space[name], [each[name] for each in values]) for name in space}
    if isinstance(space, spaces.Tuple):
        return tuple(
            parts(part, [each[index] for each in values]) for index, part in enumerate(space)
        )
    return values


def store_dataset(environment: Any, recorded: Recorded, name: str) -> Any:
    """A local data set with these episodes, written by Minari."""
    buffers = [
        minari.data_collector.EpisodeBuffer(
            id=number,
            observations=parts(
                environment.observation_space, [step[0] for step in steps] + [steps[-1][3]]
            ),
            actions=parts(environment.action_space, [step[1] for step in steps]),
            rewards=[step[2] for step in steps],
            terminations=[step[4] for step in steps],
            truncations=[step[5] for step in steps],
        )
        for number, steps in enumerate(recorded)
    ]
    return minari.create_dataset_from_buffers(
        dataset_id=name,
        buffer=buffers,
        env=environment if environment.spec is not None else None,
        observation_space=environment.observation_space,
        action_space=environment.action_space,
        **ABOUT,
    )


def agrees(steps: Any, recorded: Recorded) -> None:
    flat = [step for episode in recorded for step in episode]
    columns = [np.array(column) for column in zip(*flat, strict=True)]
    names = ("observations", "actions", "rewards", "next_observations")
    for name, column in zip(names, columns[:4], strict=True):
        np.testing.assert_array_equal(getattr(steps, name), column, err_msg=name)
    terminated = columns[4]
    truncated = columns[5] & ~terminated
    truncated[-1] = not terminated[-1]
    np.testing.assert_array_equal(steps.terminated, terminated)
    np.testing.assert_array_equal(steps.truncated, truncated)


def test_frozen_lake_data_are_read_back() -> None:
    options: dict[str, Any] = {"map_name": "8x8", "is_slippery": False}
    environment = gymnasium.make("FrozenLake-v1", max_episode_steps=12, **options)
    recorded = simulate(environment, 300)
    store_dataset(environment, recorded, "lake/random-v0")
    steps = datasets.from_minari("lake/random-v0")
    agrees(steps, recorded)
    assert steps.terminated.any()
    assert steps.truncated.any()
    world = worlds.from_gymnasium("FrozenLake-v1", **options)
    assert (steps.num_states, steps.num_actions) == (64, 4)
    assert steps.names == world.names
    assert steps.action_names == world.actions
    assert steps.metadata["dataset"] == "lake/random-v0"
    assert steps.metadata["environment"] == "FrozenLake-v1"


def test_cart_pole_data_are_read_back() -> None:
    environment = gymnasium.make("CartPole-v1", max_episode_steps=20)
    recorded = simulate(environment, 200)
    steps = datasets.from_minari(store_dataset(environment, recorded, "pole/random-v3"))
    agrees(steps, recorded)
    assert steps.terminated.any()
    assert steps.truncated.sum() > 1
    assert steps.observations.dtype == np.float32
    assert steps.states is None


def test_truncation_within_an_episode_is_read() -> None:
    environment = gymnasium.make("CartPole-v1")
    recorded = simulate(environment, 8)
    recorded[0][3] = (*recorded[0][3][:5], True)
    agrees(datasets.from_minari(store_dataset(environment, recorded, "pole/random-v0")), recorded)


def test_dicts_and_tuples_are_flattened_as_gymnasium_does() -> None:
    environment = Weather()
    recorded = simulate(environment, 50)
    steps = datasets.from_minari(store_dataset(environment, recorded, "weather/random-v0"))
    flat = [step for episode in recorded for step in episode]
    for name, index, space in (
        ("observations", 0, environment.observation_space),
        ("next_observations", 3, environment.observation_space),
        ("actions", 1, environment.action_space),
    ):
        expected: list[Any] = [spaces.flatten(space, step[index]) for step in flat]
        np.testing.assert_array_equal(getattr(steps, name), np.stack(expected))
    assert steps.num_actions is None


def test_a_state_of_gives_ids() -> None:
    environment = Weather()
    recorded = simulate(environment, 50)
    dataset = store_dataset(environment, recorded, "weather/random-v0")
    steps = datasets.from_minari(dataset, state_of=lambda _, seen: f"sun {seen['sun']}")
    assert steps.names is not None
    assert steps.states is not None
    found = [steps.names[s] for s in steps.states]
    assert found == [f"sun {step[0]['sun']}" for episode in recorded for step in episode]


@pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="Minari records with JAX")
@pytest.mark.filterwarnings("ignore:Implicitly cleaning up:ResourceWarning")
@pytest.mark.parametrize("name", ["FrozenLake-v1", "CartPole-v1"])
def test_a_dataset_recorded_by_minari(name: str) -> None:
    recorder = minari.DataCollector(gymnasium.make(name, max_episode_steps=15))
    recorded = simulate(recorder, 100)
    dataset = recorder.create_dataset(dataset_id="recorded/random-v0", **ABOUT)
    # Its temporary folders complain when they go, which they do here, where that is expected.
    del recorder
    gc.collect()
    steps = datasets.from_minari(dataset.id)
    agrees(steps, recorded)
    assert steps.terminated.any()


def test_an_unknown_id_names_those_that_are_there() -> None:
    with pytest.raises(InputError, match="no local dataset 'lake/random-v1'; there are none"):
        datasets.from_minari("lake/random-v1")
    environment = gymnasium.make("FrozenLake-v1")
    store_dataset(environment, simulate(environment, 5), "lake/random-v0")
    with pytest.raises(InputError, match=r"local dataset 'lake/rand-v1'.*there are lake/random-v0"):
        datasets.from_minari("lake/rand-v1")


def test_a_damaged_dataset_is_named(tmp_path: Path) -> None:
    environment = gymnasium.make("FrozenLake-v1")
    store_dataset(environment, simulate(environment, 5), "lake/random-v0")
    (tmp_path / "lake" / "random-v0" / "data" / "main_data.hdf5").unlink()
    with pytest.raises(InputError, match="Minari's lake/random-v0: cannot be read"):
        datasets.from_minari("lake/random-v0")


def test_anything_but_a_dataset_raises() -> None:
    with pytest.raises(InputError, match="list is no Minari dataset; give one, or the id of a"):
        datasets.from_minari([])


def test_a_dataset_without_steps_raises() -> None:
    environment = gymnasium.make("FrozenLake-v1")
    dataset = store_dataset(environment, simulate(environment, 5), "lake/random-v0")
    none = dataset.filter_episodes(lambda _: False)
    with pytest.raises(InputError, match="Minari's lake/random-v0: has no steps"):
        datasets.from_minari(none)
