"""`bisimetric atari learn`: the on-policy metric of a game, as an agent plays it."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from tyro.conf import arg

from bisimetric.cli.arguments import program
from bisimetric.cli.commands.atari.words import (
    AgentNamed,
    Device,
    Flag,
    Folder,
    Key,
    Named,
    Taken,
    agent_words,
    checked,
    folder_for,
)
from bisimetric.cli.interrupts import resumable
from bisimetric.cli.recipes import given, in_flags
from bisimetric.errors import Diverged, InputError

if TYPE_CHECKING:
    from bisimetric.games import Agent, Game
    from bisimetric.learned import Learned
    from bisimetric.learned.paper import Settings
    from bisimetric.transitions import Transitions


def learn(
    game: Named,
    steps: Taken,
    agent: AgentNamed = None,
    output: Folder = None,
    hidden: Annotated[tuple[int, ...], arg(metavar="N [N ...]")] = (16, 16),
    out: Annotated[
        Literal["relu", "open", "softplus", "linear"], arg(metavar="{relu,open,...}")
    ] = "relu",
    batch: Annotated[int, arg(metavar="B")] = 128,
    learning_rate: Annotated[
        float | None, arg(metavar="R", help_behavior_hint="(default: 7.5e-5; Pong: 0.001)")
    ] = None,
    period: Annotated[int, arg(metavar="C")] = 125,
    discount: Annotated[float, arg(metavar="G")] = 0.99,
    first: Annotated[int, arg(metavar="N")] = 10_000,
    ignore_ends: Flag = False,
    key: Key = 0,
    resume: Annotated[Path | None, arg(metavar="RUN.safetensors", help_behavior_hint="")] = None,
    device: Device = None,
) -> None:
    """A network learns d^pi of a game from the features of an agent, with the paper's settings.

    The default takes a minute or two on a large GPU, and about an hour on two processor cores.

    Args:
        game: its name, such as Pong
        agent: a .safetensors file of train-agent, a .zip of Stable-Baselines3, a checkpoint of
            Dopamine, or module:function
        output: where metric.safetensors, its run and a picture of the training go
        hidden: the widths of the hidden layers
        out: what keeps the distance at least 0; `relu` may end at 0 for good, `open` does not
        batch: transitions an update; all pairs of them are compared
        learning_rate: of Adam
        period: updates between two of the target network; 125 are 500 steps of the agent
        discount: how much the next step counts
        first: steps that are there at the first update; each update adds 4
        ignore_ends: the end of a game is a frame like any other, as in the published code
        key: of the games, the weights and the batches
        resume: go on from a run that was broken off, run.safetensors in the folder
        device: what to learn on

    Examples:
        bisimetric atari learn Pong -o pong
        bisimetric atari learn Pong --steps 20k --first 2000 -o pong
        bisimetric atari learn SpaceInvaders --unclipped --data steps.npz
        bisimetric atari learn Asterix --agent agents.py:mine --out open
    """
    played, player = checked(game, agent, steps)
    from bisimetric.paper.atari import learning

    settings = _settings(played.name, hidden, out, batch, learning_rate, period)
    _check_first(first)
    folder = folder_for(played, output)
    run, target = folder / "run.safetensors", folder / "metric.safetensors"
    data = steps.gathered(played, player, key)
    try:
        with resumable(run):
            found = learning.learn(
                data,
                settings=settings,
                key=key,
                discount=discount,
                ends=not ignore_ends,
                growing=(first, learning.EACH),
                checkpoint=run,
                resume=resume,
                device=device,
            )
    except Diverged as error:
        raise Diverged(in_flags(str(error)), error.partial) from None
    except InputError as error:
        raise InputError(in_flags(str(error))) from None
    found.save(target)
    from bisimetric import views
    from bisimetric.cli import report
    from bisimetric.views import games

    report.say(_lines(played, player, data, found), report.saved_lines([target]))
    picture = folder / "learning.png"
    views.save(games.metric_curve({played.name: found.history}), picture)
    show = [program(), "atari", "show", played.name, *agent_words(agent), "--metric", str(target)]
    report.say(report.saved_lines([picture]), [f"next: {shlex.join(show)}"])


def _settings(
    name: str,
    hidden: tuple[int, ...],
    out: str,
    batch: int,
    learning_rate: float | None,
    period: int,
) -> Settings:
    from bisimetric.learned.networks.pairs import PairNetwork
    from bisimetric.paper.atari.learning import settings_for

    try:
        network = PairNetwork(hidden, output=out)
        changes = given(learning_rate=learning_rate)
        return dataclasses.replace(
            settings_for(name), network=network, batch=batch, period=period, **changes
        )
    except InputError as error:
        raise InputError(in_flags(str(error)).replace("PairNetwork: ", "--")) from None


def _check_first(first: int) -> None:
    if first < 1:
        raise InputError(f"--first is {first} and must be a whole number, at least 1.")


def _lines(played: Game, player: Agent, data: Transitions, found: Learned) -> Iterator[str]:
    from bisimetric.cli.made import horizon_words, network_words
    from bisimetric.cli.networks import loss_line, quality_lines
    from bisimetric.cli.report import plural
    from bisimetric.learned.distance import SOME
    from bisimetric.paper.atari.learning import judged_by

    made, history = found.made, found.history
    over = int((data.terminated | data.truncated).sum())
    clipped = "clipped" if made.get("clip", True) else "as the game pays them"
    yield f"game       {played.name}, played by {player.name}"
    yield f"data       {plural(len(data), 'step')}, {plural(over, 'game')}, rewards {clipped}"
    ends = "lead to the end" if made["ends"] else "are ignored"
    yield f"distance   d^pi, the on-policy distance: an approximation; ends of games {ends}"
    yield f"network    {network_words(found.scale.features, made)}"
    speed = made["steps"] / max(made["seconds"], 1e-9)
    yield f"updates    {made['steps']:,}, in {made['seconds']:.3g} s, {speed:,.0f} a second"
    yield f"device     {made['device']}"
    yield f"horizon    {horizon_words(made, found.discount)}"
    yield loss_line(history)
    if "correlation" in history:
        yield (
            f"exact      correlation {history['correlation'][-1]:.3f} with the distances of "
            f"recorded futures, off by {history['error'][-1]:.0%} of their mean"
        )
    else:
        yield "exact      not known: no future was recorded for long enough"
    quality = judged_by(found, data)
    yield f"largest    {quality.largest:.3g}, among the pairs of {SOME} drawn steps"
    yield from quality_lines(found.kind, quality, SOME, "pairs")
