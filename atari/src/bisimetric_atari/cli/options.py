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


@dataclasses.dataclass(frozen=True)
class CollectOptions:
    """The transitions that a metric is learned from."""

    steps: Annotated[str, arg(metavar="N")] = "600k"
    """environment steps of the agent; one update per 4 steps"""
    no_reward_clipping: bool = False
    """use the game's rewards; the paper clips them to -1, 0 and 1"""
    data: Annotated[Path | None, arg(metavar="STEPS.npz", help_behavior_hint="")] = None
    """read the steps from this file; where there is none, collect them and write it"""
    num_envs: Annotated[int, arg(metavar="N")] = 32
    """games played in parallel to collect steps"""

    def parse_steps(self) -> int:
        """Return the number of steps."""
        return parse_count("--steps", self.steps, minimum=8)

    def collect(self, game: Game, agent: Agent, seed: int) -> Transitions:
        """Read the transitions, or collect them."""
        from bisimetric_atari.paper import experiment

        return experiment.load_or_collect(
            game,
            agent,
            steps=self.parse_steps(),
            num_envs=self.num_envs,
            seed=seed,
            clip_rewards=not self.no_reward_clipping,
            data=self.data,
        )


def load_game_and_agent(
    name: str, agent: str | None, steps: CollectOptions | None = None
) -> tuple[Game, Agent]:
    """Load the game and the agent after the other options have been validated."""
    from bisimetric_atari import games

    game = games.find_game(name)
    if steps is not None:
        steps.parse_steps()
        if steps.data is not None and not steps.data.exists():
            from bisimetric._io import require_writable

            require_writable(steps.data)
    from bisimetric_atari import agents

    return game, agents.load(agent, game)


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
