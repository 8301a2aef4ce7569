"""The words that the commands of `bisimetric atari` share."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from tyro.conf import FlagCreatePairsOff, OmitArgPrefixes, Positional, arg

from bisimetric.cli.options import parse_count

if TYPE_CHECKING:
    from bisimetric.games import Agent, Game
    from bisimetric.transitions import Transitions

GameArg = Annotated[Positional[str], arg(name="game", metavar="GAME")]
AgentArg = Annotated[str | None, arg(metavar="AGENT", help_behavior_hint="(default: ours)")]
OutputFolderArg = Annotated[
    Path | None,
    arg(
        name="output", aliases=["-o"], metavar="FOLDER", help_behavior_hint="(default: atari/GAME)"
    ),
]
OptionalDeviceArg = Annotated[
    Literal["cpu", "gpu"] | None,
    arg(metavar="{cpu,gpu}", help_behavior_hint="(default: the best there is)"),
]
Flag = FlagCreatePairsOff[bool]
SeedArg = Annotated[int, arg(metavar="K")]


@dataclasses.dataclass(frozen=True)
class CollectOptions:
    """The steps of the agent that a metric is learned from."""

    steps: Annotated[str, arg(metavar="N")] = "600k"
    """steps of the agent; one update every 4 of them"""
    no_reward_clipping: Flag = False
    """take rewards as the game pays them; the paper clips them to -1, 0 and 1"""
    data: Annotated[Path | None, arg(metavar="STEPS.npz", help_behavior_hint="")] = None
    """steps that were collected before; where there is no such file, they are kept in it"""
    num_envs: Annotated[int, arg(name="games", metavar="N")] = 32
    """games that are played side by side to collect steps"""

    def parse_steps(self) -> int:
        return parse_count("--steps", self.steps, minimum=8)

    def collect(self, game: Game, agent: Agent, seed: int) -> Transitions:
        """The steps, collected or read."""
        from bisimetric.paper.atari import experiment

        return experiment.load_or_collect(
            game,
            agent,
            steps=self.parse_steps(),
            num_games=self.num_envs,
            seed=seed,
            clip_rewards=not self.no_reward_clipping,
            data=self.data,
        )


CollectArg = OmitArgPrefixes[CollectOptions]


def load_game_and_agent(
    name: str, agent: str | None, steps: CollectOptions | None = None
) -> tuple[Game, Agent]:
    """The game and the agent, once the rest is known to be good."""
    from bisimetric import games

    played = games.find_game(name)
    if steps is not None:
        steps.parse_steps()
        if steps.data is not None and not steps.data.exists():
            from bisimetric._io import require_writable

            require_writable(steps.data)
    from bisimetric import agents

    return played, agents.load(agent, played)


def create_folder(game: Game, output: Path | None) -> Path:
    """Where the files of a game go; made where it is missing."""
    folder = Path("atari") / game.name if output is None else output
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        words = f"cannot make the folder {folder}: {error.strerror}; name another one with -o."
        raise type(error)(words) from None
    return folder


def format_agent_arguments(agent: str | None) -> list[str]:
    """The same agent in another command."""
    return [] if agent is None else ["--agent", agent]
