"""The parts of the Atari experiment: data, metric, recorded episode, figures and claims."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bisimetric._io import require_writable, write_atomically
from bisimetric.errors import InputError, require_integer
from bisimetric.learned import LearnedDistance
from bisimetric.transitions import Transitions
from bisimetric_atari import agents
from bisimetric_atari.agents import dopamine
from bisimetric_atari.agents.api import is_bundle
from bisimetric_atari.games import Agent, Episode, Game, collect, find_game, play
from bisimetric_atari.games._collect import NUM_ENVS
from bisimetric_atari.games._play import MIN_STEPS
from bisimetric_atari.games.agent import EPSILON
from bisimetric_atari.games.environments import FRAME_SKIP, MAX_NOOPS, REPEAT_ACTION_PROBABILITY
from bisimetric_atari.paper import baselines as baseline_distances
from bisimetric_atari.paper import claims
from bisimetric_atari.paper.claims import Claim
from bisimetric_atari.paper.learning import STEPS

METRICS_FOLDER = Path(__file__).parent / "metrics"
"""Included metrics, one file per game: `<game>.safetensors`."""

PAPER_METRIC = "castro2020"
"""The name of the included metrics of the paper's algorithm, and their folder."""

NUM_EPISODES, MAX_STEPS = 5, 2_000
DEFAULT_SOURCE = 3 * claims.WINDOW
"""Three seconds after the start: before, the playing field is empty, or the game waits."""
FIGURES = ("distances.png", "frames.png", "learning.png", "training.png")
VIDEOS = ("episode.mp4", "sorted.mp4")
PAGE = "explore.html"


def reproduce(
    folder: str | os.PathLike[str],
    game: str | Game,
    agent: Agent | None = None,
    metric: LearnedDistance | None = None,
    *,
    episodes: int = NUM_EPISODES,
    max_steps: int = MAX_STEPS,
    source: int | None = None,
    epsilon: float = EPSILON,
    seed: int = 0,
    window: int = claims.WINDOW,
    videos: bool = True,
) -> EpisodeAnalysis:
    """Record episodes, measure all frames, and write figures, videos, page and claims.

    Args:
        folder: where files are written; created if missing.
        game: the game or its name.
        agent: the agent that plays; default: the pretrained one.
        metric: the metric of that agent; default: the included one.
        episodes: number of successive episodes.
        max_steps: length at which the recording is cut.
        source: index of the frame that distances are measured from; default: 45, three seconds
            after the start.
        epsilon: probability of a uniformly random action.
        seed: of the random actions.
        window: steps around an event that belong to it.
        videos: whether to write videos.

    Returns:
        The recording, its distances and the claims.

    Raises:
        InputError: if agent, metric and game do not fit, or an argument is out of range.
    """
    game = find_game(game)
    agent = agents.load(None, game) if agent is None else agent
    metric = load_metric(None, game, agent) if metric is None else metric
    analysis = analyse_episode(
        game,
        agent,
        metric,
        episodes=episodes,
        max_steps=max_steps,
        source=source,
        epsilon=epsilon,
        seed=seed,
        window=window,
    )
    write_outputs(analysis, folder, videos=videos)
    return analysis


def load_or_collect(
    game: str | Game,
    agent: Agent,
    *,
    steps: int = STEPS,
    num_envs: int = NUM_ENVS,
    epsilon: float = EPSILON,
    seed: int = 0,
    clip_rewards: bool = True,
    num_threads: int = 0,
    max_noops: int = MAX_NOOPS,
    frame_skip: int = FRAME_SKIP,
    repeat_action_probability: float = REPEAT_ACTION_PROBABILITY,
    data: str | os.PathLike[str] | None = None,
) -> Transitions:
    """Read transitions of an agent from a file, or collect them and write it.

    Args:
        game: the game or its name.
        agent: the agent that plays it.
        steps: agent steps in all.
        num_envs: number of parallel games.
        epsilon: probability of a uniformly random action.
        seed: of the starts and the random actions.
        clip_rewards: whether to clip rewards to [-1, 1].
        num_threads: threads of ALE; 0 for one per core.
        max_noops: no-op frames at the start of an episode, fewer than this.
        frame_skip: emulator frames per step.
        repeat_action_probability: sticky actions: the probability, per frame, that the emulator
            repeats the last action.
        data: the file; None for no file. What its metadata do not record is not compared, so that
            features collected elsewhere can be used.

    Returns:
        The transitions.

    Raises:
        InputError: if the file records another game, agent, clipping, frame skip or other sticky
            actions.
    """
    game = find_game(game)
    if data is not None and Path(data).exists():
        transitions = Transitions.load(data)
        expected = {
            "game": game.name,
            "agent": agent.name,
            "clip_rewards": clip_rewards,
            "frame_skip": frame_skip,
            "repeat_action_probability": repeat_action_probability,
        }
        for field, value in expected.items():
            stored = transitions.metadata.get(field, value)
            if stored != value:
                raise InputError(
                    f"{data} holds other transitions: its {field} is {stored} and here it is "
                    f"{value}; name another file."
                )
        return transitions[:steps] if len(transitions) > steps else transitions
    if data is not None:
        require_writable(data)
    transitions = collect(
        game,
        agent,
        steps=steps,
        num_envs=num_envs,
        epsilon=epsilon,
        seed=seed,
        clip_rewards=clip_rewards,
        num_threads=num_threads,
        max_noops=max_noops,
        frame_skip=frame_skip,
        repeat_action_probability=repeat_action_probability,
    )
    if data is not None:
        transitions.save(data)
    return transitions


def load_metric(
    path: str | os.PathLike[str] | None, game: str | Game, agent: Agent
) -> LearnedDistance:
    """Read a metric, and check that it fits the game and the agent.

    Args:
        path: the file; None for the metric that is included for the game, "castro2020" for the
            included one of the paper's algorithm; or a checkpoint of the paper's published code,
            such as `tf_ckpt-4`.
        game: the game or its name.
        agent: the agent whose features it measures.

    Returns:
        The metric.

    Raises:
        InputError: if no metric is included for the game, or it is of another game or agent.
    """
    game = find_game(game)
    is_included = path is None or os.fspath(path) == PAPER_METRIC
    folder = METRICS_FOLDER if path is None else METRICS_FOLDER / PAPER_METRIC
    file = folder / f"{game.name}.safetensors" if is_included else Path(path or "")
    if is_included and not file.exists():
        available = ", ".join(
            sorted(stored.stem for stored in METRICS_FOLDER.glob("*.safetensors"))
        )
        raise InputError(
            f"{game.name}: no metric is included for it, only for {available}; learn one with "
            f"`bisimetric atari learn {game.name} --agent {agent.name} -o mine`, then give its "
            "file, --metric mine/metric.safetensors."
        )
    if is_bundle(os.fspath(file)):
        metric = dopamine.load_metric(file, game.name)
    else:
        metric = LearnedDistance.load(file)
    metric_game = metric.metadata.get("game")
    if metric_game != game.name:
        raise InputError(
            f"{file} is of {metric_game or 'no game'} and not of {game.name}; name another."
        )
    metric_agent = metric.metadata.get("agent")
    if is_included and metric_agent != agent.name:
        raise InputError(
            f"{game.name}: the included metric is of {metric_agent} and not of {agent.name}; "
            f"learn one with `bisimetric atari learn {game.name} --agent {agent.name} -o mine`, "
            "then give its file, --metric mine/metric.safetensors."
        )
    if len(metric.scaling.shift) != agent.num_features:
        raise InputError(
            f"{file} is for {len(metric.scaling.shift)} features and {agent.name} has "
            f"{agent.num_features}; name the agent that it was learned with, {metric_agent}."
        )
    return metric


@dataclasses.dataclass(frozen=True, eq=False)
class EpisodeAnalysis:
    """A recording with its distances.

    Attributes:
        episode: the recording of n frames.
        agent: the agent that played; None where unknown.
        metric: the learned metric.
        source: index of the source frame.
        distances: (n,), of each frame to the source frame.
        claims: the paper's claims, checked.
        baselines: the same claims for distances of pixels, features and values.
    """

    episode: Episode
    agent: Agent | None
    metric: LearnedDistance
    source: int
    distances: NDArray[np.float64]
    claims: list[Claim]
    baselines: dict[str, list[Claim]]


def analyse_episode(
    game: str | Game,
    agent: Agent,
    metric: LearnedDistance,
    *,
    episodes: int = NUM_EPISODES,
    max_steps: int = MAX_STEPS,
    source: int | None = None,
    epsilon: float = EPSILON,
    seed: int = 0,
    window: int = claims.WINDOW,
    max_noops: int = 0,
    frame_skip: int = FRAME_SKIP,
    repeat_action_probability: float = REPEAT_ACTION_PROBABILITY,
) -> EpisodeAnalysis:
    """Record episodes, and compute the distance of each frame to the frame `source`.

    Args:
        game: the game or its name.
        agent: the agent that plays it.
        metric: the metric of that agent's features.
        episodes: number of successive episodes.
        max_steps: length at which the recording is cut.
        source: index of the source frame; default: 45, three seconds after the start.
        epsilon: probability of a uniformly random action.
        seed: of the random actions, and of an agent that samples.
        window: steps around an event that belong to it.
        max_noops: no-op frames at the start of an episode, fewer than this.
        frame_skip: emulator frames per step.
        repeat_action_probability: sticky actions: the probability, per frame, that the emulator
            repeats the last action.

    Returns:
        The recording, its distances and the claims.

    Raises:
        InputError: if the agent does not fit the game, or an argument is out of range.
    """
    game = find_game(game)
    max_steps = require_integer(game.name, "max_steps", max_steps, MIN_STEPS)
    if source is not None and not 0 <= require_integer(game.name, "source", source) < max_steps:
        raise InputError(
            f"is frame {source} and max_steps is {max_steps}", caller=game.name, argument="source"
        )
    episode = play(
        game,
        agent,
        episodes=episodes,
        max_steps=max_steps,
        epsilon=epsilon,
        seed=seed,
        max_noops=max_noops,
        frame_skip=frame_skip,
        repeat_action_probability=repeat_action_probability,
    )
    return analyse_recording(episode, metric, agent=agent, source=source, window=window)


def analyse_recording(
    episode: Episode,
    metric: LearnedDistance,
    *,
    agent: Agent | None = None,
    source: int | None = None,
    window: int = claims.WINDOW,
) -> EpisodeAnalysis:
    """Compute the distance of each frame of a recording to the frame `source`.

    Args:
        episode: a recording, such as `Episode.from_transitions` builds from features that were
            collected elsewhere.
        metric: a metric of these features.
        agent: the agent that played, where it is known.
        source: index of the source frame; default: 45, three seconds after the start.
        window: steps around an event that belong to it.

    Returns:
        The recording, its distances and the claims.

    Raises:
        InputError: if the features do not fit the metric, or an argument is out of range.
    """
    if source is None:
        source = min(DEFAULT_SOURCE, len(episode) - 1)
    if not 0 <= require_integer(episode.game, "source", source) < len(episode):
        raise InputError(
            f"is frame {source} and the recording has {len(episode)} frames",
            caller=episode.game,
            argument="source",
            remedy="name an earlier one, or play more episodes",
        )
    if len(metric.scaling.shift) != episode.features.shape[1]:
        raise InputError(
            f"{episode.game}: the metric is for {len(metric.scaling.shift)} features and the "
            f"recording has {episode.features.shape[1]}; learn a metric from the same features."
        )
    distances = np.asarray(
        metric.table(episode.features[[source]], episode.features)[0], np.float64
    )
    options: dict[str, Any] = {
        "source": source,
        "window": window,
        "discount": metric.discount,
        "clip_rewards": bool(metric.metadata.get("clip", True)),
    }
    return EpisodeAnalysis(
        episode,
        agent,
        metric,
        source,
        distances,
        claims.check_claims(episode, distances, **options),
        baseline_distances.check_baselines(episode, **options),
    )


def write_outputs(
    analysis: EpisodeAnalysis,
    folder: str | os.PathLike[str],
    *,
    videos: bool = True,
    **metadata: Any,
) -> list[Path]:
    """Write figures, videos, the interactive page and the claims.

    Args:
        analysis: that of `analyse_episode`.
        folder: where files are written; created if missing.
        videos: whether to write videos.
        **metadata: JSON-compatible facts to store with the claims.

    Returns:
        The paths of the files.
    """
    from bisimetric import explorer, views
    from bisimetric_atari import views as game_views

    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    episode, d, source = analysis.episode, analysis.distances, analysis.source
    title = f"{episode.game}: distance of every frame to frame {source}"
    views.save_figure(
        game_views.plot_episode_curve(episode, d, source=source, title=title), target / FIGURES[0]
    )
    paths = [target / FIGURES[0]]
    if episode.has_screens:
        views.save_figure(game_views.plot_extremes(episode, d, source=source), target / FIGURES[1])
        paths.append(target / FIGURES[1])
    if "step" in analysis.metric.history:
        curves = views.plot_metric_curve({episode.game: analysis.metric.history})
        views.save_figure(curves, target / FIGURES[2])
        paths.append(target / FIGURES[2])
    history = getattr(analysis.agent, "history", {})
    if "step" in history:
        evaluation = getattr(analysis.agent, "metadata", {}).get("evaluation")
        scores = {episode.game: evaluation["mean"]} if evaluation else None
        curve = views.plot_agent_curve({episode.game: history}, evaluation_scores=scores)
        views.save_figure(curve, target / FIGURES[3])
        paths.append(target / FIGURES[3])
    if videos and episode.has_screens:
        paths.append(game_views.write_video(episode, d, target / VIDEOS[0], source=source))
        paths.append(game_views.write_sorted_video(episode, d, target / VIDEOS[1], source=source))
    if episode.has_screens:
        paths.append(target / PAGE)
        explorer.save_page(build_page(analysis), paths[-1])
    record = {
        **metadata,
        "source": source,
        "episode": episode.metadata,
        "scores": episode.scores.tolist(),
        "frames": len(episode),
        "metric": analysis.metric.metadata,
        "claims": claims.to_json(analysis.claims),
        "baselines": {name: claims.to_json(each) for name, each in analysis.baselines.items()},
    }
    with write_atomically(target / "claims.json") as beside:
        beside.write_text(json.dumps(_replace_nan(record), indent=1) + "\n", encoding="utf-8")
    return [*paths, target / "claims.json"]


def build_page(analysis: EpisodeAnalysis) -> str:
    """Build the interactive page, on which any frame can be the source; at most 600 frames."""
    from bisimetric import explorer
    from bisimetric.explorer.episodes import MAX_FRAMES

    episode = analysis.episode
    times = np.unique(np.linspace(0, len(episode) - 1, MAX_FRAMES).round().astype(np.int64))
    # Learned self-distances are not exactly 0.
    values = np.array(analysis.metric.table(episode.features[times]))
    np.fill_diagonal(values, 0.0)
    return explorer.render_episode(
        episode.screens[times],
        values,
        times=times,
        palette=episode.palette,
        values=episode.values[times],
        events={frame: ", ".join(labels) for frame, labels in _label_events(episode).items()},
        total_frames=len(episode),
        source=analysis.source,
        title=f"{episode.game}, played by {episode.metadata.get('agent', 'an agent')}",
        distance_name="learned on-policy distance",
    )


def _label_events(episode: Episode) -> dict[int, list[str]]:
    """Return the labels of the events at each frame."""
    events = {"game starts": episode.starts, "life lost": episode.life_losses}
    if episode.level_starts is not None:
        events["level starts"] = episode.level_starts
    labels: dict[int, list[str]] = {}
    for label, frames in events.items():
        for frame in frames:
            labels.setdefault(int(frame), []).append(label)
    return dict(sorted(labels.items()))


def _replace_nan(record: Any) -> Any:
    """Replace NaN and infinities, which JSON lacks, by None."""
    if isinstance(record, dict):
        return {name: _replace_nan(value) for name, value in record.items()}
    if isinstance(record, Sequence) and not isinstance(record, str):
        return [_replace_nan(value) for value in record]
    return None if isinstance(record, float) and not np.isfinite(record) else record
