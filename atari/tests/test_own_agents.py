"""Agents that need raw frames, recurrent state, executed actions or random numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ale_py
import numpy as np
import pytest
from numpy.typing import NDArray

from bisimetric.errors import InputError
from bisimetric_atari import agents, games
from bisimetric_atari.agents import GameContext
from bisimetric_atari.agents.callables import make_agent
from bisimetric_atari.games import BatchContext
from bisimetric_atari.games.agent import RANDOM_BLOCK
from bisimetric_atari.games.environments import derive_seeds

EPSILON, SEED, STEPS = 0.15, 3, 400
ALE = "space_invaders"


def scripted(screen: NDArray[np.uint8], state: Any, context: GameContext) -> Any:
    """Act on the raw screen, a recurrent state, the executed action, and a random number."""
    age, trail = (0, 0) if context.is_first else state
    seen = int(screen[100:190, ::3].sum(dtype=np.int64))
    trail = (31 * trail + 7 * context.executed_action + seen) % 1_000_003
    draw = context.rng.random()
    action = (trail + age + int(4 * draw)) % 6
    features = [screen.mean() / 255, trail / 1_000_003, context.executed_action, age % 100, draw]
    return (action, features, trail / 1_000_003), (age + 1, trail)


scripted.observes = "screen"  # type: ignore[attr-defined]


class OwnLoop:
    """The loop that such an agent comes with: ALE itself, without this library's games."""

    def __init__(self, frame_skip: int, sticky: float) -> None:
        ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
        self.frame_skip = frame_skip
        self.ale = ale_py.ALEInterface()
        self.ale.setInt("random_seed", int(derive_seeds(SEED, 1)[0]))
        self.ale.setFloat("repeat_action_probability", sticky)
        self.ale.loadROM(str(ale_py.roms.get_rom_path(ALE)))
        self.actions = self.ale.getMinimalActionSet()

    def play(self, steps: int) -> list[tuple[int, float, list[float]]]:
        """Return action, reward and features of each step."""
        explore = np.random.default_rng(np.random.SeedSequence(SEED, spawn_key=(0, 1)))
        sample = np.random.default_rng(np.random.SeedSequence(SEED, spawn_key=(0, 2)))
        draws = explore.random((2, RANDOM_BLOCK))
        self.ale.reset_game()
        rows, state, executed = [], None, -1
        for step in range(steps):
            context = GameContext(step == 0, executed, sample)
            (action, features, _), state = scripted(self.ale.getScreenRGB(), state, context)
            executed = int(6 * draws[1, step]) if draws[0, step] < EPSILON else action
            reward = 0.0
            for _ in range(self.frame_skip):
                reward += self.ale.act(self.actions[executed])
                if self.ale.game_over():
                    break
            rows.append((executed, reward, features))
            if self.ale.game_over():
                break
        return rows


@pytest.mark.parametrize(("frame_skip", "sticky"), [(4, 0.0), (1, 0.0), (3, 0.25)])
def test_an_agent_plays_as_in_its_own_loop(frame_skip: int, sticky: float) -> None:
    agent = make_agent("scripted", scripted, games.find_game("SpaceInvaders"))
    options: Any = {"frame_skip": frame_skip, "repeat_action_probability": sticky}
    episode = games.play(
        "SpaceInvaders", agent, max_steps=STEPS, epsilon=EPSILON, seed=SEED, **options
    )
    own = OwnLoop(frame_skip, sticky).play(STEPS)
    assert len(own) == len(episode) > 300
    assert [row[0] for row in own] == episode.actions.tolist()
    assert [row[1] for row in own] == episode.rewards.tolist()
    np.testing.assert_array_equal(np.array([row[2] for row in own], np.float32), episode.features)
    assert len({*episode.actions.tolist()}) == 6
    # The greedy action was replaced, and the agent was told so.
    assert (episode.features[1:, 2] == episode.actions[:-1]).all()
    found = {name: episode.metadata[name] for name in (*options, "observes", "sampled_actions")}
    assert found == {**options, "observes": "screen", "sampled_actions": True}
    # In parallel games, the first one is the same.
    data = games.collect(
        "SpaceInvaders", agent, steps=3 * 50, num_envs=3, epsilon=EPSILON, seed=SEED,
        max_noops=0, clip_rewards=False, **options,
    )  # fmt: skip
    assert data.actions[:50].tolist() == episode.actions[:50].tolist()
    assert data.metadata["frame_skip"] == frame_skip
    assert data.metadata["repeat_action_probability"] == sticky


def test_vectorised_agents_receive_the_context() -> None:
    class Vectorised:
        name, num_actions, num_features = "vectorised", 6, 2
        observes, observation_shape = "screen", (210, 160, 3)

        def __init__(self) -> None:
            self.contexts: list[BatchContext] = []
            self.first: list[list[bool]] = []

        def initial_state(self, num_envs: int) -> Any:
            return np.zeros(num_envs, np.int64)

        def act(self, screens: Any, state: Any, is_first: Any, context: BatchContext) -> Any:
            assert screens.shape == (len(is_first), 210, 160, 3)
            self.contexts.append(context)
            self.first.append(is_first.tolist())
            action = np.array([rng.integers(6) for rng in context.rngs])
            features = np.stack([action, context.executed_actions], axis=1).astype(np.float32)
            return agents.AgentOutput(action, features, np.zeros(len(action), np.float32)), state

    agent: Any = Vectorised()
    episode = games.play("Pong", agent, max_steps=30, epsilon=0.5, seed=1)
    assert agent.first[0] == [True]
    assert agent.contexts[0].executed_actions.tolist() == [-1]
    assert (episode.features[1:, 1] == episode.actions[:-1]).all()
    assert (episode.features[:, 0] != episode.actions).any()
    again = games.play("Pong", Vectorised(), max_steps=30, epsilon=0.5, seed=1)  # type: ignore[arg-type]
    other = games.play("Pong", Vectorised(), max_steps=30, epsilon=0.5, seed=2)  # type: ignore[arg-type]
    assert again.actions.tolist() == episode.actions.tolist() != other.actions.tolist()
    scores = agents.evaluate("Pong", agent, num_episodes=1, frame_skip=8, max_noops=0)
    assert scores.shape == (1,)


def test_stacked_agents_are_unchanged_and_sample_nothing() -> None:
    data = games.collect("Pong", games.IdleAgent("Pong"), steps=8, num_envs=2)
    assert data.metadata["observes"] == "stacked"
    assert data.metadata["sampled_actions"] is False
    assert data.metadata["frame_skip"] == 4


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"frame_skip": 0}, "frame_skip is 0"),
        ({"repeat_action_probability": 1.5}, "repeat_action_probability is 1.5 and must be"),
        ({"epsilon": -0.1}, "epsilon is -0.1"),
    ],
)
def test_options_are_validated(change: dict[str, Any], complaint: str) -> None:
    for function in (games.play, games.collect):
        with pytest.raises(InputError, match=complaint):
            function("Pong", games.IdleAgent("Pong"), **change)


def test_other_observations_raise() -> None:
    def wrong(observation: Any, state: Any) -> Any:
        return (0, [1.0], 0.0), state

    wrong.observes = "rgb"  # type: ignore[attr-defined]
    with pytest.raises(InputError, match="observes is 'rgb' and must be 'stacked'"):
        make_agent("wrong", wrong, games.find_game("Pong"))


JAX_AGENT = """
import jax, numpy as np

weights = jax.random.normal(jax.random.key(0), (80 * 80, 6)) / 80

@jax.jit
def network(frame, hidden):
    hidden = jax.numpy.tanh(frame @ weights + 0.9 * hidden)
    return jax.nn.softmax(3 * hidden), hidden

def mine(screen, hidden, context):
    frame = screen[34:194:2, ::2].mean(axis=2).ravel() / 255
    hidden = np.zeros(6) if hidden is None else hidden
    policy, hidden = network(frame, hidden)
    policy = np.asarray(policy, np.float64)
    return (context.rng.choice(6, p=policy / policy.sum()), hidden, float(hidden.mean())), hidden

mine.observes = "screen"
"""


def test_a_recurrent_jax_agent_samples(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(JAX_AGENT)
    agent = agents.load(f"{tmp_path / 'mine.py'}:mine", "Pong")
    assert (agent.num_features, agent.observation_shape) == (6, (210, 160, 3))
    first, second = (games.play("Pong", agent, max_steps=20, seed=seed) for seed in (0, 1))
    assert first.metadata["sampled_actions"]
    assert first.actions.tolist() != second.actions.tolist()
    data = games.collect("Pong", agent, steps=16, num_envs=2)
    assert data.observations.shape == (16, 6)


TORCH_AGENT = """
import numpy as np, torch

torch.manual_seed(0)
torch.set_num_threads(1)
cell, actor, critic = torch.nn.GRUCell(1600, 256), torch.nn.Linear(256, 6), torch.nn.Linear(256, 1)

@torch.inference_mode()
def mine(screen, hidden, context):
    frame = torch.from_numpy(screen[34:194:4, ::4].mean(axis=2).astype(np.float32) / 255)
    hidden = cell(frame.reshape(1, -1), hidden)
    policy = torch.softmax(actor(hidden), dim=1)[0].double().numpy()
    action = context.rng.choice(6, p=policy / policy.sum())
    return (action, hidden[0].numpy(), critic(hidden).item()), hidden

mine.observes = "screen"
"""


def test_a_recurrent_pytorch_agent_samples(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "mine_torch.py").write_text(TORCH_AGENT)
    agent = agents.load(f"{tmp_path / 'mine_torch.py'}:mine", "Pong")
    assert agent.num_features == 256
    episode = games.play("Pong", agent, max_steps=20, seed=0)
    assert episode.metadata["sampled_actions"]
    assert np.abs(np.diff(episode.features, axis=0)).max() > 0
