"""`bisimetric atari show`: distances along an episode, as figures, films and numbers."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

from tyro.conf import arg

from bisimetric.cli.commands.atari.options import (
    AgentArg,
    Flag,
    GameArg,
    OutputFolderArg,
    SeedArg,
    create_folder,
    format_agent_arguments,
    load_game_and_agent,
)
from bisimetric.cli.options import parse_count, program_name


def show(
    game: GameArg,
    agent: AgentArg = None,
    metric: Annotated[
        Path | None, arg(metavar="METRIC.safetensors", help_behavior_hint="(default: ours)")
    ] = None,
    output: OutputFolderArg = None,
    episodes: Annotated[int, arg(metavar="N")] = 5,
    steps: Annotated[str, arg(metavar="N")] = "2000",
    origin: Annotated[int, arg(metavar="FRAME")] = 0,
    window: Annotated[int, arg(metavar="N")] = 15,
    epsilon: Annotated[float, arg(metavar="E")] = 0.001,
    no_videos: Flag = False,
    save_episode: Flag = False,
    seed: SeedArg = 0,
) -> None:
    """An agent plays, and a metric measures every frame from one of them: figures, films, numbers.

    distances.png shows the distances and the differences of values, frames.png the nearest and the
    furthest frames, episode.mp4 the paper's four panels, sorted.mp4 all frames by distance,
    explore.html any frame as the source, learning.png and training.png how metric and agent came
    about, and observations.json what the paper saw in such plots, each as a number.

    Args:
        game: its name, such as Pong
        agent: a .safetensors file of train-agent, a .zip of Stable-Baselines3, a checkpoint of
            Dopamine, or module:function
        metric: what `bisimetric atari learn` has saved, for the same agent
        output: where the files go
        episodes: games to be played in a row
        steps: where they are cut
        source: the frame to measure from
        window: steps around an event that belong to it
        epsilon: the share of random actions
        no_films: figures and numbers only
        keep: save the episode with its screens too, episode.npz
        key: of the random actions

    Examples:
        bisimetric atari show Pong
        bisimetric atari show SpaceInvaders --steps 500 --source 120 --no-films -o invaders
        bisimetric atari show Pong --agent mine.safetensors --metric pong/metric.safetensors
    """
    most = parse_count("--steps", steps, minimum=2)
    played, player = load_game_and_agent(game, agent)
    from bisimetric.paper.atari import experiment

    measure = experiment.load_metric(metric, played, player)
    folder = create_folder(played, output)
    shown = experiment.analyse_episode(
        played,
        player,
        measure,
        episodes=episodes,
        max_steps=most,
        source=origin,
        epsilon=epsilon,
        seed=seed,
        window=window,
    )
    from bisimetric.cli import report

    episode = shown.episode
    scores = ", ".join(f"{score:g}" for score in episode.scores)
    report.print_lines(
        [
            f"game       {played.name}, played by {player.name}",
            f"metric     {measure.metadata['steps']:,} updates, {metric or 'shipped'}",
            f"frames     {len(episode):,} of {report.format_count(len(episode.starts), 'game')}",
            f"scores     {scores}" + ("" if episode.terminated[-1] else ", the last one cut"),
            f"distances  {shown.distances.mean():.3g} on average, {shown.distances.max():.3g} at "
            f"most, to frame {origin}",
            "observations of the paper:",
        ],
        (f"  {each}" for each in shown.claims),
    )
    paths = experiment.write_outputs(shown, folder, videos=not no_videos, agent=agent or "shipped")
    if save_episode:
        paths.append(folder / "episode.npz")
        episode.save(paths[-1])
    learn = [
        program_name(),
        "atari",
        "learn",
        played.name,
        *format_agent_arguments(agent),
        "-o",
        str(folder),
    ]
    report.print_lines(
        report.describe_saved(paths), [f"next: {shlex.join(learn)}, for a metric of your own"]
    )
