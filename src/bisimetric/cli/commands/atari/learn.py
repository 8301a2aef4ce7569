"""`bisimetric atari learn`: the on-policy metric of a game, as an agent plays it."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from tyro.conf import arg

from bisimetric.cli.commands.atari.options import (
    AgentArg,
    CollectArg,
    Flag,
    GameArg,
    OptionalDeviceArg,
    OutputFolderArg,
    SeedArg,
    create_folder,
    format_agent_arguments,
    load_game_and_agent,
)
from bisimetric.cli.learned_options import omit_none, translate_arguments
from bisimetric.cli.options import program_name
from bisimetric.cli.output import report_checkpoint
from bisimetric.errors import Diverged, InputError

if TYPE_CHECKING:
    from bisimetric.games import Agent, Game
    from bisimetric.learned import LearnedDistance
    from bisimetric.learned.castro2020 import Castro2020Config
    from bisimetric.transitions import Transitions


def learn(
    game: GameArg,
    steps: CollectArg,
    agent: AgentArg = None,
    output: OutputFolderArg = None,
    hidden: Annotated[tuple[int, ...], arg(metavar="N [N ...]")] = (16, 16),
    output_activation: Annotated[
        Literal["relu", "open", "softplus", "linear"], arg(metavar="{relu,open,...}")
    ] = "relu",
    batch_size: Annotated[int, arg(metavar="B")] = 128,
    learning_rate: Annotated[
        float | None, arg(metavar="R", help_behavior_hint="(default: 7.5e-5; Pong: 0.001)")
    ] = None,
    target_update_period: Annotated[int, arg(metavar="C")] = 125,
    discount: Annotated[float, arg(metavar="G")] = 0.99,
    learning_starts: Annotated[int, arg(metavar="N")] = 10_000,
    ignore_terminals: Flag = False,
    seed: SeedArg = 0,
    resume: Annotated[Path | None, arg(metavar="RUN.safetensors", help_behavior_hint="")] = None,
    device: OptionalDeviceArg = None,
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
    played, player = load_game_and_agent(game, agent, steps)
    from bisimetric.paper.atari import learning

    settings = _build_config(
        played.name, hidden, output_activation, batch_size, learning_rate, target_update_period
    )
    _validate_learning_starts(learning_starts)
    folder = create_folder(played, output)
    run, target = folder / "run.safetensors", folder / "metric.safetensors"
    data = steps.collect(played, player, seed)
    try:
        with report_checkpoint(run):
            found = learning.learn(
                data,
                config=settings,
                seed=seed,
                discount=discount,
                terminal_state=not ignore_terminals,
                replay_growth=(learning_starts, learning.STEPS_PER_UPDATE),
                checkpoint=run,
                resume=resume,
                device=device,
            )
    except Diverged as error:
        raise Diverged(translate_arguments(str(error)), error.partial) from None
    except InputError as error:
        raise InputError(translate_arguments(str(error))) from None
    found.save(target)
    from bisimetric import views
    from bisimetric.cli import report
    from bisimetric.views import games

    report.print_lines(_describe(played, player, data, found), report.describe_saved([target]))
    picture = folder / "learning.png"
    views.save_figure(games.plot_metric_curve({played.name: found.history}), picture)
    show = [
        program_name(),
        "atari",
        "show",
        played.name,
        *format_agent_arguments(agent),
        "--metric",
        str(target),
    ]
    report.print_lines(report.describe_saved([picture]), [f"next: {shlex.join(show)}"])


def _build_config(
    name: str,
    hidden: tuple[int, ...],
    output_activation: str,
    batch_size: int,
    learning_rate: float | None,
    target_update_period: int,
) -> Castro2020Config:
    from bisimetric.learned.networks.pair_network import PairNetwork
    from bisimetric.paper.atari.learning import get_config

    try:
        network = PairNetwork(hidden, output=output_activation)
        changes = omit_none(learning_rate=learning_rate)
        return dataclasses.replace(
            get_config(name),
            network=network,
            batch=batch_size,
            target_update_period=target_update_period,
            **changes,
        )
    except InputError as error:
        raise InputError(translate_arguments(str(error)).replace("PairNetwork: ", "--")) from None


def _validate_learning_starts(learning_starts: int) -> None:
    if learning_starts < 1:
        raise InputError(f"--first is {learning_starts} and must be a whole number, at least 1.")


def _describe(
    played: Game, player: Agent, data: Transitions, learned: LearnedDistance
) -> Iterator[str]:
    from bisimetric.cli.learned_report import describe_quality, format_loss
    from bisimetric.cli.network_report import format_horizon, format_network
    from bisimetric.cli.report import format_count
    from bisimetric.learned.learned_distance import EVALUATION_BATCH
    from bisimetric.paper.atari.learning import evaluate_metric

    made, history = learned.metadata, learned.history
    over = int((data.terminated | data.truncated).sum())
    clipped = "clipped" if made.get("clip", True) else "as the game pays them"
    yield f"game       {played.name}, played by {player.name}"
    yield f"data       {format_count(len(data), 'step')}, {format_count(over, 'game')}, rewards {clipped}"
    ends = "lead to the end" if made["ends"] else "are ignored"
    yield f"distance   d^pi, the on-policy distance: an approximation; ends of games {ends}"
    yield f"network    {format_network(learned.scaling.num_features, made)}"
    speed = made["steps"] / max(made["seconds"], 1e-9)
    yield f"updates    {made['steps']:,}, in {made['seconds']:.3g} s, {speed:,.0f} a second"
    yield f"device     {made['device']}"
    yield f"horizon    {format_horizon(made, learned.discount)}"
    yield format_loss(history)
    if "correlation" in history:
        yield (
            f"exact      correlation {history['correlation'][-1]:.3f} with the distances of "
            f"recorded futures, off by {history['error'][-1]:.0%} of their mean"
        )
    else:
        yield "exact      not known: no future was recorded for long enough"
    quality = evaluate_metric(learned, data)
    yield f"largest    {quality.max_distance:.3g}, among the pairs of {EVALUATION_BATCH} drawn steps"
    yield from describe_quality(learned.kind, quality, EVALUATION_BATCH, "pairs")
