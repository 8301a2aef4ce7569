"""The words that the commands of `bisimetric atari` share."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from tyro.conf import FlagCreatePairsOff, OmitArgPrefixes, Positional, arg

from bisimetric.cli.arguments import count

if TYPE_CHECKING:
    from bisimetric.games import Agent, Game
    from bisimetric.transitions import Transitions

Named = Annotated[Positional[str], arg(name="game", metavar="GAME")]
AgentNamed = Annotated[str | None, arg(metavar="AGENT", help_behavior_hint="(default: ours)")]
Folder = Annotated[
    Path | None,
    arg(
        name="output", aliases=["-o"], metavar="FOLDER", help_behavior_hint="(default: atari/GAME)"
    ),
]
Device = Annotated[
    Literal["cpu", "gpu"] | None,
    arg(metavar="{cpu,gpu}", help_behavior_hint="(default: the best there is)"),
]
Flag = FlagCreatePairsOff[bool]
Key = Annotated[int, arg(metavar="K")]


@dataclasses.dataclass(frozen=True)
class Steps:
    """The steps of the agent that a metric is learned from."""

    steps: Annotated[str, arg(metavar="N")] = "600k"
    """steps of the agent; one update every 4 of them"""
    unclipped: Flag = False
    """take rewards as the game pays them; the paper clips them to -1, 0 and 1"""
    data: Annotated[Path | None, arg(metavar="STEPS.npz", help_behavior_hint="")] = None
    """steps that were collected before; where there is no such file, they are kept in it"""
    side: Annotated[int, arg(name="games", metavar="N")] = 32
    """games that are played side by side to collect steps"""

    def taken(self) -> int:
        return count("--steps", self.steps, least=8)

    def gathered(self, played: Game, agent: Agent, key: int) -> Transitions:
        """The steps, collected or read."""
        from bisimetric.paper.atari import experiment

        return experiment.gathered(
            played,
            agent,
            steps=self.taken(),
            count=self.side,
            key=key,
            clip=not self.unclipped,
            data=self.data,
        )


Taken = OmitArgPrefixes[Steps]


def checked(named: str, agent: str | None, steps: Steps | None = None) -> tuple[Game, Agent]:
    """The game and the agent, once the rest is known to be good."""
    from bisimetric import games

    played = games.game(named)
    if steps is not None:
        steps.taken()
        if steps.data is not None and not steps.data.exists():
            from bisimetric.files import check_writable

            check_writable(steps.data)
    from bisimetric import agents

    return played, agents.load(agent, played)


def folder_for(played: Game, given: Path | None) -> Path:
    """Where the files of a game go; made where it is missing."""
    folder = Path("atari") / played.name if given is None else given
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        words = f"cannot make the folder {folder}: {error.strerror}; name another one with -o."
        raise type(error)(words) from None
    return folder


def agent_words(agent: str | None) -> list[str]:
    """The same agent in another command."""
    return [] if agent is None else ["--agent", agent]
