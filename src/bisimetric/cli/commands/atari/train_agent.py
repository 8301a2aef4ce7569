"""`bisimetric atari train-agent`: a Rainbow agent of one's own."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

from tyro.conf import arg

from bisimetric.cli.commands.atari.options import GameArg, OutputFolderArg, SeedArg, create_folder
from bisimetric.cli.options import parse_count, program_name
from bisimetric.cli.output import report_checkpoint


def train_agent(
    game: GameArg,
    steps: Annotated[str, arg(metavar="N")] = "10M",
    minutes: Annotated[float | None, arg(metavar="M", help_behavior_hint="(default: none)")] = None,
    output: OutputFolderArg = None,
    num_envs: Annotated[int, arg(metavar="N")] = 128,
    batch_size: Annotated[int, arg(metavar="B")] = 512,
    capacity: Annotated[str, arg(metavar="N")] = "1M",
    learning_starts: Annotated[str, arg(metavar="N")] = "20k",
    log_every: Annotated[str, arg(metavar="N")] = "100k",
    eval_episodes: Annotated[int, arg(metavar="N")] = 30,
    seed: SeedArg = 0,
    resume: Annotated[Path | None, arg(metavar="RUN.safetensors", help_behavior_hint="")] = None,
) -> None:
    """Trains a Rainbow agent as Dopamine defines it, many games at once. For a GPU.

    The agents that are shipped were made so. A run is kept each minute, and goes on from there.

    Args:
        game: its name, such as Pong
        steps: of the agent in all games, four frames each; those before --resume included
        minutes: stop when they have passed
        output: where agent.safetensors, its run and a picture of the training go
        games: played side by side
        batch: steps that an update learns from; it divides 16 times --games
        capacity: steps that are kept to learn from, 7 kB each
        start: steps before the first update
        every: steps between two records of the score
        episodes: whole games that the agent is judged by
        key: of the games, the weights and the batches
        resume: go on from a run, run.safetensors in the folder

    Examples:
        bisimetric atari train-agent Pong --minutes 10 -o pong
        bisimetric atari train-agent Pong --resume pong/run.safetensors -o pong
    """
    numbers = {
        "steps": parse_count("--steps", steps, minimum=1),
        "every": parse_count("--every", log_every, minimum=1),
        "capacity": parse_count("--capacity", capacity, minimum=1),
        "start": parse_count("--start", learning_starts, minimum=1),
    }
    from bisimetric import games as library
    from bisimetric.cli import report
    from bisimetric.errors import InputError

    played = library.find_game(game)
    if minutes is not None and not minutes > 0:
        raise InputError(f"--minutes is {minutes:g} and must be above 0.")
    if eval_episodes < 1:
        raise InputError(f"--episodes is {eval_episodes} and must be a whole number, at least 1.")
    import numpy as np

    from bisimetric.agents import api, rainbow

    try:
        settings = rainbow.RainbowConfig(
            num_games=num_envs,
            batch=batch_size,
            capacity=numbers["capacity"],
            min_replay_size=numbers["start"],
        )
    except InputError as error:
        words = str(error).removeprefix("Settings: ").replace("count is", "games is")
        flags = ("games is", "batch is", "capacity is", "start is")
        raise InputError(f"--{words}" if words.startswith(flags) else words) from None
    folder = create_folder(played, output)
    run, target = folder / "run.safetensors", folder / "agent.safetensors"
    with report_checkpoint(run):
        done = rainbow.train(
            played.name,
            steps=numbers["steps"],
            seed=seed,
            config=settings,
            log_every=numbers["every"],
            max_minutes=minutes,
            checkpoint=run,
            resume=resume,
        )
    # Judged as it is shipped, in 16 bits.
    rainbow.save(target, done)
    judged = api.summarise_evaluation(
        played, rainbow.load(target), num_episodes=eval_episodes, seed=seed + 1
    )
    rainbow.save(target, done, judged)
    scores = np.array(judged["scores"])
    speed = done.steps / max(done.seconds, 1e-9)
    report.print_lines(
        [
            f"game       {played.name}, {report.format_count(len(played.actions), 'action')}",
            f"steps      {done.steps:,}, in {done.seconds:,.0f} s, {speed:,.0f} a second",
            f"score      {scores.mean():.4g} on average of {report.format_count(eval_episodes, 'game')}, from "
            f"{scores.min():g} to {scores.max():g}",
        ],
        report.describe_saved([target, run]),
    )
    from bisimetric import views
    from bisimetric.views.games import plot_agent_curve

    picture = folder / "training.png"
    views.save_figure(plot_agent_curve({played.name: done.history}), picture)
    learn = [
        program_name(),
        "atari",
        "learn",
        played.name,
        "--agent",
        str(target),
        "-o",
        str(folder),
    ]
    report.print_lines(report.describe_saved([picture]), [f"next: {shlex.join(learn)}"])
