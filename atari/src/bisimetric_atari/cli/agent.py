"""`bisimetric atari train-agent` and `atari show`: train an agent, and analyse its episodes."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import arg

from bisimetric._text import pluralise
from bisimetric.cli.options import SeedArg, parse_count, program_name
from bisimetric.cli.output import report_checkpoint
from bisimetric.errors import InputError
from bisimetric_atari.cli.options import (
    AgentArg,
    EpsilonArg,
    FolderArg,
    FrameSkipArg,
    GameArg,
    MaxNoopsArg,
    RepeatActionArg,
    ResumeArg,
    create_folder,
    describe_player,
    format_agent_arguments,
    load_game_and_agent,
)

if TYPE_CHECKING:
    from bisimetric.learned import LearnedDistance
    from bisimetric_atari.games import Episode


def train_agent(
    game: GameArg,
    steps: Annotated[str, arg(metavar="N")] = "10M",
    minutes: Annotated[float | None, arg(metavar="M", help_behavior_hint="(default: none)")] = None,
    output: FolderArg = None,
    num_envs: Annotated[int, arg(metavar="N")] = 128,
    batch_size: Annotated[int, arg(metavar="B")] = 512,
    capacity: Annotated[str, arg(metavar="N")] = "1M",
    learning_starts: Annotated[str, arg(metavar="N")] = "20k",
    log_every: Annotated[str, arg(metavar="N")] = "100k",
    eval_episodes: Annotated[int, arg(metavar="N")] = 30,
    seed: SeedArg = 0,
    resume: ResumeArg = None,
) -> None:
    """Train a Rainbow agent as defined by Dopamine, in many parallel games. For a GPU.

    The pretrained agents were trained this way. A checkpoint is written every minute.

    Args:
        game: its name, such as Pong
        steps: total agent steps in all games, four frames each; those before --resume included
        minutes: time limit
        output: the folder of agent.safetensors, its checkpoint and a figure of the training
        num_envs: games played in parallel
        batch_size: steps per update; it divides 16 times --num-envs
        capacity: steps in the replay buffer, 7 kB each
        learning_starts: steps before the first update
        log_every: steps between two records of the score
        eval_episodes: episodes of the final evaluation
        seed: seed of the games, the weights and the batches
        resume: continue from a checkpoint, run.safetensors in the folder

    Examples:
        bisimetric atari train-agent Pong --minutes 10 -o pong
        bisimetric atari train-agent Pong --resume pong/run.safetensors -o pong
    """
    num_steps = parse_count("--steps", steps, minimum=1)
    interval = parse_count("--log-every", log_every, minimum=1)
    replay_capacity = parse_count("--capacity", capacity, minimum=1)
    min_steps = parse_count("--learning-starts", learning_starts, minimum=1)
    from bisimetric_atari import games

    found = games.find_game(game)
    if minutes is not None and not minutes > 0:
        raise InputError(f"--minutes is {minutes:g} and must be above 0.")
    if eval_episodes < 1:
        raise InputError(
            f"--eval-episodes is {eval_episodes} and must be a whole number, at least 1."
        )
    import numpy as np

    from bisimetric import views
    from bisimetric.cli import report
    from bisimetric_atari.agents import api, rainbow

    config = rainbow.RainbowConfig(
        num_envs=num_envs,
        batch_size=batch_size,
        capacity=replay_capacity,
        learning_starts=min_steps,
    )
    folder = create_folder(found, output)
    checkpoint, target = folder / "run.safetensors", folder / "agent.safetensors"
    with report_checkpoint(checkpoint):
        training = rainbow.train(
            found.name,
            steps=num_steps,
            seed=seed,
            config=config,
            log_every=interval,
            minutes=minutes,
            checkpoint=checkpoint,
            resume=resume,
        )
    # Evaluated as saved, with 16-bit weights.
    rainbow.save(target, training)
    evaluation = api.summarise_evaluation(
        found, rainbow.load(target), num_episodes=eval_episodes, seed=seed + 1
    )
    rainbow.save(target, training, evaluation)
    scores = np.array(evaluation["scores"])
    speed = training.steps / max(training.seconds, 1e-9)
    mean = f"mean {scores.mean():.4g} of {pluralise(eval_episodes, 'episode')}"
    report.emit(
        [
            report.Fact(
                "game",
                f"{found.name}, {pluralise(len(found.actions), 'action')}",
                {"name": found.name, "actions": len(found.actions)},
            ),
            report.Fact(
                "steps",
                f"{training.steps:,}, in {training.seconds:,.0f} s, {speed:,.0f} per second",
                training.steps,
            ),
            report.Fact("score", f"{mean}, from {scores.min():g} to {scores.max():g}", scores),
        ],
        report.describe_saved([target, checkpoint]),
    )
    report.emit_values(seconds=training.seconds)
    figure = folder / "training.png"
    curve = views.plot_agent_curve(
        {found.name: training.history}, evaluation_scores={found.name: evaluation["mean"]}
    )
    views.save_figure(curve, figure)
    words = [found.name, "--agent", str(target), "-o", str(folder)]
    command = shlex.join([program_name(), "atari", "learn", *words])
    report.emit(report.describe_saved([figure]), [report.Fact("next", command)])


def show(
    game: GameArg,
    agent: AgentArg = None,
    metric: Annotated[
        Path | None, arg(metavar="METRIC.safetensors", help_behavior_hint="(default: pretrained)")
    ] = None,
    output: FolderArg = None,
    episodes: Annotated[int, arg(metavar="N")] = 5,
    steps: Annotated[str, arg(metavar="N")] = "2000",
    source: Annotated[
        int | None, arg(name="from", metavar="FRAME", help_behavior_hint="(default: 45)")
    ] = None,
    window: Annotated[int, arg(metavar="N")] = 15,
    data: Annotated[Path | None, arg(metavar="STEPS.npz", help_behavior_hint="")] = None,
    epsilon: EpsilonArg = 0.001,
    max_noops: MaxNoopsArg = 0,
    frame_skip: FrameSkipArg = 4,
    repeat_action_probability: RepeatActionArg = 0.0,
    no_videos: bool = False,
    save_episode: bool = False,
    seed: SeedArg = 0,
) -> None:
    """Analyse the distances along an agent's episodes: figures, videos and numbers.

    distances.png shows distances and value differences, frames.png the nearest and the farthest
    frames, episode.mp4 the paper's four panels, sorted.mp4 all frames by distance, explore.html
    the distances from any frame, learning.png and training.png the training of metric and agent,
    and claims.json the paper's claims about such plots, each with its statistics.

    Args:
        game: its name, such as Pong
        agent: a .safetensors file of train-agent, a .zip of Stable-Baselines3, a checkpoint of
            Dopamine, or module:function
        metric: a metric saved by `bisimetric atari learn`, for the same agent
        output: the folder of the files
        episodes: consecutive episodes to play
        steps: the largest number of steps
        source: the frame to measure from; 45 is three seconds after the start, the paper has 0
        window: steps around an event that belong to it
        data: show these recorded features, which were collected elsewhere, without playing
        epsilon: the probability of a random action
        max_noops: no-op frames at the start of an episode, fewer than this
        frame_skip: emulator frames per step
        repeat_action_probability: sticky actions: the probability, per frame, that the last action
            is repeated
        no_videos: write figures and numbers only
        save_episode: also save the episode with its frames, episode.npz
        seed: seed of the random actions

    Examples:
        bisimetric atari show Pong
        bisimetric atari show SpaceInvaders --steps 500 --from 120 --no-videos -o invaders
        bisimetric atari show Pong --agent mine.safetensors --metric pong/metric.safetensors
        bisimetric atari show Pong --data features.npz --metric pong/metric.safetensors
    """
    max_steps = parse_count("--steps", steps, minimum=2)
    from bisimetric_atari.games import find_game

    if data is None:
        found, player = load_game_and_agent(game, agent)
    elif agent is not None:
        raise InputError("--agent plays and --data shows recorded steps; leave out one of them.")
    else:
        found, player = find_game(game), None
    from bisimetric.cli import report
    from bisimetric_atari.paper import baselines, experiment

    if player is None:
        distance, episode = _load_recording(data, metric, found.name, max_steps)
        analysis = experiment.analyse_recording(episode, distance, source=source, window=window)
        folder = create_folder(found, output)
    else:
        distance = experiment.load_metric(metric, found, player)
        folder = create_folder(found, output)
        analysis = experiment.analyse_episode(
            found,
            player,
            distance,
            episodes=episodes,
            max_steps=max_steps,
            source=source,
            epsilon=epsilon,
            seed=seed,
            window=window,
            max_noops=max_noops,
            frame_skip=frame_skip,
            repeat_action_probability=repeat_action_probability,
        )
    episode, distances, source = analysis.episode, analysis.distances, analysis.source
    scores = ", ".join(f"{score:g}" for score in episode.scores)
    updates = distance.metadata["updates"]
    mean, largest = float(distances.mean()), float(distances.max())
    frames = f"{len(episode):,} of {pluralise(len(episode.starts), 'episode')}"
    truncated = "" if episode.terminated[-1] else ", the last one truncated"
    report.emit(
        [
            report.Fact(
                "game",
                f"{found.name}, {describe_player(player, data)}",
                {"name": found.name, "agent": None if player is None else player.name},
            ),
            report.Fact(
                "metric",
                f"{updates:,} updates, {metric or 'pretrained'}",
                {"name": str(metric or "pretrained"), "updates": updates},
            ),
            report.Fact("frames", frames, len(episode)),
            report.Fact("scores", f"{scores}{truncated}", episode.scores),
            report.Fact(
                "distances",
                f"{mean:.3g} on average, at most {largest:.3g}, from frame {source}",
                {"mean": mean, "largest": largest, "from": source},
            ),
            "claims of the paper:",
        ],
        (f"  {claim}" for claim in analysis.claims),
        ["the same for other distances (probability or correlation; * holds):"],
        baselines.format_table(analysis.claims, analysis.baselines),
    )
    columns = {"claims": analysis.claims, **analysis.baselines}
    values = {
        name: {claim.name: {"holds": claim.holds, **claim.statistics} for claim in checked}
        for name, checked in columns.items()
    }
    report.emit_values(claims=values.pop("claims"), baselines=values)
    player_name = str(data) if player is None else agent or "pretrained"
    paths = experiment.write_outputs(analysis, folder, videos=not no_videos, agent=player_name)
    if save_episode:
        paths.append(folder / "episode.npz")
        episode.save(paths[-1])
    words = [found.name, *format_agent_arguments(agent), "-o", str(folder)]
    command = shlex.join([program_name(), "atari", "learn", *words])
    suggestion = report.Fact("next", f"{command}, for your own metric")
    report.emit(report.describe_saved(paths), [suggestion])


def _load_recording(
    data: Path | None, metric: Path | None, game: str, max_steps: int
) -> tuple[LearnedDistance, Episode]:
    """Load features that were collected elsewhere, and the metric that was learned from them."""
    if metric is None:
        raise InputError(
            f"--metric is missing; learn one with `bisimetric atari learn {game} --data {data} -o "
            "mine`, then give its file, --metric mine/metric.safetensors."
        )
    from bisimetric.learned import LearnedDistance
    from bisimetric.transitions import Transitions
    from bisimetric_atari.games import Episode

    steps = Transitions.load(data or "")
    steps = steps[:max_steps] if len(steps) > max_steps else steps
    return LearnedDistance.load(metric), Episode.from_transitions(steps, game=game)
