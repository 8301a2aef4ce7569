"""Options that the commands of `bisimetric atari` share, and the objects that they name."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

from bisimetric.cli.options import parse_count

if TYPE_CHECKING:
    from bisimetric.transitions import Transitions
    from bisimetric_atari.games import Agent, Game

GameArg = Annotated[Positional[str], arg(name="game", metavar="GAME")]
AgentArg = Annotated[str | None, arg(metavar="AGENT", help_behavior_hint="(default: pretrained)")]
FolderArg = Annotated[
    Path | None,
    arg(aliases=["-o"], metavar="FOLDER", help_behavior_hint="(default: atari/GAME)"),
]
ResumeArg = Annotated[Path | None, arg(metavar="RUN.safetensors", help_behavior_hint="")]


EpsilonArg = Annotated[float, arg(metavar="E")]
FrameSkipArg = Annotated[int, arg(metavar="N")]
RepeatActionArg = Annotated[float, arg(metavar="P")]
MaxNoopsArg = Annotated[int, arg(metavar="N")]


@dataclasses.dataclass(frozen=True)
class CollectOptions:
    """The transitions that a metric is learned from."""

    steps: Annotated[str, arg(metavar="N")] = "600k"
    """environment steps of the agent"""
    no_reward_clipping: bool = False
    """use the game's rewards; the paper clips them to -1, 0 and 1"""
    data: Annotated[Path | None, arg(metavar="STEPS.npz", help_behavior_hint="")] = None
    """read the steps from this file; where there is none, collect them and write it. Features that
    were collected elsewhere need no agent"""
    num_envs: Annotated[int, arg(metavar="N")] = 32
    """games played in parallel to collect steps"""
    epsilon: EpsilonArg = 0.001
    """the probability of a random action"""
    max_noops: MaxNoopsArg = 30
    """no-op frames at the start of an episode, fewer than this"""
    frame_skip: FrameSkipArg = 4
    """emulator frames per step"""
    repeat_action_probability: RepeatActionArg = 0.0
    """sticky actions: the probability, per frame, that the last action is repeated"""

    def parse_steps(self) -> int:
        """Return the number of steps."""
        return parse_count("--steps", self.steps, minimum=8)

    def collect(self, game: Game, agent: Agent | None, seed: int) -> Transitions:
        """Read the transitions, or collect them."""
        from bisimetric.transitions import Transitions
        from bisimetric_atari.paper import experiment

        if agent is None:
            data = Transitions.load(self.data or "")
            return data[: self.parse_steps()] if len(data) > self.parse_steps() else data
        return experiment.load_or_collect(
            game,
            agent,
            steps=self.parse_steps(),
            num_envs=self.num_envs,
            seed=seed,
            clip_rewards=not self.no_reward_clipping,
            epsilon=self.epsilon,
            max_noops=self.max_noops,
            frame_skip=self.frame_skip,
            repeat_action_probability=self.repeat_action_probability,
            data=self.data,
        )


def load_game_and_agent(
    name: str, agent: str | None, steps: CollectOptions | None = None
) -> tuple[Game, Agent | None]:
    """Load the game and the agent after the other options have been validated.

    The agent is None for recorded features whose agent is unknown.
    """
    from bisimetric_atari import games

    game = games.find_game(name)
    if steps is not None:
        steps.parse_steps()
        if steps.data is not None and not steps.data.exists():
            from bisimetric._io import require_writable

            require_writable(steps.data)
        elif steps.data is not None and agent is None and is_foreign(steps.data):
            return game, None
    from bisimetric_atari import agents

    return game, agents.load(agent, game)


def is_foreign(path: Path) -> bool:
    """Return whether transitions were collected elsewhere: their metadata name no agent."""
    from bisimetric.transitions import Transitions

    return "agent" not in Transitions.load(path).metadata


def describe_player(agent: Agent | None, data: Path | None) -> str:
    """Return who played: the agent, or the file of features that were collected elsewhere."""
    return f"features of {data}" if agent is None else f"played by {agent.name}"


def create_folder(game: Game, output: Path | None) -> Path:
    """Create the output folder of a game, where it is missing."""
    folder = Path("atari") / game.name if output is None else output
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        message = f"cannot create the folder {folder}: {error.strerror}; name another one with -o."
        raise type(error)(message) from None
    return folder


def format_agent_arguments(agent: str | None) -> list[str]:
    """Return the command-line arguments that name the same agent."""
    return [] if agent is None else ["--agent", agent]
