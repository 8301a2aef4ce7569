"""The agents that come with the package: they are there, and they really play."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("jax")
pytest.importorskip("ale_py")

from bisimetric import agents, games
from bisimetric.agents.rainbow import RainbowAgent
from bisimetric.errors import InputError

AIMS = {"Pong": 18, "SpaceInvaders": 1_000, "Asterix": 3_000}


@pytest.mark.parametrize("game", AIMS)
def test_an_agent_is_shipped_with_its_training_and_its_scores(game: str) -> None:
    agent = agents.load(None, game)
    assert isinstance(agent, RainbowAgent)
    assert agent.metadata["game"] == game
    judged = agent.metadata["evaluation"]
    assert len(judged["scores"]) == judged["episodes"] == 30
    assert np.mean(judged["scores"]) == pytest.approx(judged["mean"])
    assert judged["mean"] >= AIMS[game]
    assert agent.history["step"][-1] == agent.metadata["steps"]
    assert np.diff(agent.history["seconds"]).min() > 0


def test_the_agent_of_pong_wins_points() -> None:
    episode = games.play("Pong", agents.pretrained("Pong"), max_steps=500)
    assert (episode.rewards > 0).sum() >= 3
    assert (episode.rewards < 0).sum() <= 1


def test_scores_are_those_of_whole_games() -> None:
    class Down:
        """Stays in its corner, and loses."""

        name, num_actions, num_features, observation_shape = "down", 6, 1, (4, 84, 84)

        def initial_state(self, num_games: int) -> None:
            return None

        def act(
            self, observations: np.ndarray, state: object, is_first: np.ndarray
        ) -> tuple[games.AgentOutput, object]:
            n = len(observations)
            found = np.full(n, 3), np.zeros((n, 1), np.float32), np.zeros(n, np.float32)
            return games.AgentOutput(*found), state

    found = agents.evaluate("Pong", Down(), num_episodes=3, epsilon=0.0)
    assert found.shape == (3,)
    assert (found <= -18).all()
    assert (found >= -21).all()


def test_other_games_have_none() -> None:
    with pytest.raises(InputError, match=r"Breakout: no agent is shipped for it, only for Ast.*"):
        agents.load(None, "Breakout")
