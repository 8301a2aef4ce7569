"""The pretrained agents: their files and their scores."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("jax")
pytest.importorskip("ale_py")

from bisimetric.errors import InputError
from bisimetric_atari import agents, games
from bisimetric_atari.agents.rainbow import RainbowAgent

MIN_SCORES = {"Pong": 18, "SpaceInvaders": 1_000, "Asterix": 3_000}


@pytest.mark.parametrize("game", MIN_SCORES)
def test_pretrained_agents_hold_their_history_and_scores(game: str) -> None:
    agent = agents.load(None, game)
    assert isinstance(agent, RainbowAgent)
    assert agent.metadata["game"] == game
    evaluation = agent.metadata["evaluation"]
    assert len(evaluation["scores"]) == evaluation["episodes"] == 30
    assert np.mean(evaluation["scores"]) == pytest.approx(evaluation["mean"])
    assert evaluation["mean"] >= MIN_SCORES[game]
    assert agent.history["step"][-1] == agent.metadata["steps"]
    assert np.diff(agent.history["seconds"]).min() > 0


def test_the_agent_of_pong_scores() -> None:
    episode = games.play("Pong", agents.pretrained("Pong"), max_steps=500)
    assert (episode.rewards > 0).sum() >= 3
    assert (episode.rewards < 0).sum() <= 1


def test_scores_are_those_of_complete_episodes() -> None:
    class DownAgent:
        """Always moves down, and loses."""

        name, num_actions, num_features, observation_shape = "down", 6, 1, (4, 84, 84)

        def initial_state(self, num_envs: int) -> None:
            return None

        def act(
            self, observations: np.ndarray, state: object, is_first: np.ndarray
        ) -> tuple[games.AgentOutput, object]:
            n = len(observations)
            output = np.full(n, 3), np.zeros((n, 1), np.float32), np.zeros(n, np.float32)
            return games.AgentOutput(*output), state

    scores = agents.evaluate("Pong", DownAgent(), num_episodes=3, epsilon=0.0)
    assert scores.shape == (3,)
    assert (scores <= -18).all()
    assert (scores >= -21).all()


def test_other_games_have_no_pretrained_agent() -> None:
    with pytest.raises(
        InputError, match=r"Breakout: no pretrained agent is included for it, only for Ast.*"
    ):
        agents.load(None, "Breakout")
