"""The experiment, part by part: an agent plays, a metric is learned, and its episodes are shown."""

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
from bisimetric.games import Agent, Episode, Game, collect, find_game, play
from bisimetric.games._collect import NUM_GAMES
from bisimetric.games._play import MIN_STEPS
from bisimetric.games.agent import EPSILON
from bisimetric.learned import LearnedDistance
from bisimetric.paper.atari import claims as observations
from bisimetric.paper.atari.claims import Claim
from bisimetric.paper.atari.learning import STEPS
from bisimetric.transitions import Transitions

METRICS_FOLDER = Path(__file__).parent / "metrics"
"""The metrics that are shipped, one a game: `<game>.safetensors`."""

NUM_EPISODES, MAX_STEPS = 5, 2_000
FIGURES = ("distances.png", "frames.png", "learning.png", "training.png")
VIDEOS = ("episode.mp4", "sorted.mp4")
PAGE = "explore.html"


def load_or_collect(
    name: str | Game,
    agent: Agent,
    *,
    steps: int = STEPS,
    num_games: int = NUM_GAMES,
    epsilon: float = EPSILON,
    seed: int = 0,
    clip_rewards: bool = True,
    num_threads: int = 0,
    data: str | os.PathLike[str] | None = None,
) -> Transitions:
    """Steps of an agent: read from the file `data` where it is there, else collected, and kept.

    The other arguments are those of `games.collect`.
    """
    played = find_game(name)
    if data is not None and Path(data).exists():
        found = Transitions.load(data)
        wanted = {"game": played.name, "agent": agent.name, "clip": clip_rewards}
        for what, here in wanted.items():
            if found.metadata.get(what) != here:
                raise InputError(
                    f"{data} holds other steps: its {what} is {found.metadata.get(what)} and here it "
                    f"is {here}; name another file."
                )
        return found[:steps] if len(found) > steps else found
    if data is not None:
        require_writable(data)
    found = collect(
        played,
        agent,
        steps=steps,
        num_games=num_games,
        epsilon=epsilon,
        seed=seed,
        clip_rewards=clip_rewards,
        num_threads=num_threads,
    )
    if data is not None:
        found.save(data)
    return found


def load_metric(
    named: str | os.PathLike[str] | None, name: str | Game, agent: Agent
) -> LearnedDistance:
    """The metric in a file, or the one that is shipped for a game; it must fit the agent."""
    played = find_game(name)
    if named is None:
        path = METRICS_FOLDER / f"{played.name}.safetensors"
        if not path.exists():
            there = sorted(each.stem for each in METRICS_FOLDER.glob("*.safetensors"))
            raise InputError(
                f"{played.name}: no metric is shipped for it"
                + (f", only for {', '.join(there)}" if there else "")
                + f"; learn one with `bisimetric atari learn {played.name}` and name its file."
            )
    else:
        path = Path(named)
    metric = LearnedDistance.load(path)
    of = metric.metadata.get("game")
    if of != played.name:
        raise InputError(f"{path} is of {of or 'no game'} and not of {played.name}; name another.")
    if len(metric.scaling.shift) != agent.num_features:
        raise InputError(
            f"{path} is for {len(metric.scaling.shift)} features and {agent.name} has "
            f"{agent.num_features}; name the agent that it was learned with, "
            f"{metric.metadata.get('agent')}."
        )
    return metric


@dataclasses.dataclass(frozen=True, eq=False)
class EpisodeAnalysis:
    """An episode, the distance of each of its frames to the frame `source`, and what it shows."""

    episode: Episode
    agent: Agent
    metric: LearnedDistance
    source: int
    distances: NDArray[np.float64]
    claims: list[Claim]


def analyse_episode(
    name: str | Game,
    agent: Agent,
    metric: LearnedDistance,
    *,
    episodes: int = NUM_EPISODES,
    max_steps: int = MAX_STEPS,
    source: int = 0,
    epsilon: float = EPSILON,
    seed: int = 0,
    window: int = observations.WINDOW,
) -> EpisodeAnalysis:
    """Plays so many `episodes` or `most` steps, and measures all frames from the frame `source`."""
    played = find_game(name)
    max_steps = require_integer(played.name, "most", max_steps, MIN_STEPS)
    if not 0 <= require_integer(played.name, "source", source) < max_steps:
        raise InputError(
            f"{played.name}: source is frame {source} and at most {max_steps} are played."
        )
    episode = play(
        played, agent, episodes=episodes, max_steps=max_steps, epsilon=epsilon, seed=seed
    )
    if source >= len(episode):
        raise InputError(
            f"{played.name}: source is frame {source} and the games ended after {len(episode)}; "
            "name an earlier one, or play more episodes."
        )
    distances = np.asarray(
        metric.table(episode.features[[source]], episode.features)[0], np.float64
    )
    found = observations.check_claims(
        episode,
        distances,
        source=source,
        window=window,
        discount=metric.discount,
        clip_rewards=bool(metric.metadata.get("clip", True)),
    )
    return EpisodeAnalysis(episode, agent, metric, source, distances, found)


def write_outputs(
    analysis: EpisodeAnalysis,
    folder: str | os.PathLike[str],
    *,
    videos: bool = True,
    **metadata: Any,
) -> list[Path]:
    """Writes figures, films and numbers of what was measured; `about` goes with the numbers."""
    from bisimetric import explorer, views
    from bisimetric.views import games

    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    episode, d, source = analysis.episode, analysis.distances, analysis.source
    what = f"{episode.game}: distance of every frame to frame {source}"
    views.save_figure(
        games.plot_episode_curve(episode, d, source=source, title=what), target / FIGURES[0]
    )
    views.save_figure(games.plot_extremes(episode, d, source=source), target / FIGURES[1])
    paths = [target / name for name in FIGURES[:2]]
    if "step" in analysis.metric.history:
        curves = games.plot_metric_curve({episode.game: analysis.metric.history})
        views.save_figure(curves, target / FIGURES[2])
        paths.append(target / FIGURES[2])
    trained = getattr(analysis.agent, "history", {})
    if "step" in trained:
        views.save_figure(games.plot_agent_curve({episode.game: trained}), target / FIGURES[3])
        paths.append(target / FIGURES[3])
    if videos:
        paths.append(games.write_video(episode, d, target / VIDEOS[0], source=source))
        paths.append(games.write_sorted_video(episode, d, target / VIDEOS[1], source=source))
    paths.append(target / PAGE)
    explorer.save_page(build_page(analysis), paths[-1])
    record = {
        **metadata,
        "source": source,
        "episode": episode.metadata,
        "scores": episode.scores.tolist(),
        "frames": len(episode),
        "metric": analysis.metric.metadata,
        "observations": observations.to_json(analysis.claims),
    }
    with write_atomically(target / "observations.json") as beside:
        beside.write_text(json.dumps(_replace_nan(record), indent=1) + "\n", encoding="utf-8")
    return [*paths, target / "observations.json"]


def build_page(analysis: EpisodeAnalysis) -> str:
    """The episode as a page on which any frame can be the source; of a long one, some frames."""
    from bisimetric import explorer
    from bisimetric.explorer.episodes import MAX_FRAMES

    episode = analysis.episode
    times = np.unique(np.linspace(0, len(episode) - 1, MAX_FRAMES).round().astype(np.int64))
    # A network does not know that a frame is at distance 0 of itself.
    table = np.array(analysis.metric.table(episode.features[times]))
    np.fill_diagonal(table, 0.0)
    return explorer.render_episode(
        episode.screens[times],
        table,
        times=times,
        palette=episode.palette,
        values=episode.values[times],
        events={at: ", ".join(said) for at, said in _label_events(episode).items()},
        total_frames=len(episode),
        source=analysis.source,
        title=f"{episode.game}, played by {episode.metadata.get('agent', 'an agent')}",
        distance_name="learned on-policy distance",
    )


def _label_events(episode: Episode) -> dict[int, list[str]]:
    """What happened, by frame, in words."""
    events = {"game starts": episode.starts, "life lost": episode.life_losses}
    if episode.level_starts is not None:
        events["level starts"] = episode.level_starts
    found: dict[int, list[str]] = {}
    for words, at in events.items():
        for each in at:
            found.setdefault(int(each), []).append(words)
    return dict(sorted(found.items()))


def _replace_nan(record: Any) -> Any:
    """What JSON has no word for, NaN, as None."""
    if isinstance(record, dict):
        return {name: _replace_nan(each) for name, each in record.items()}
    if isinstance(record, Sequence) and not isinstance(record, str):
        return [_replace_nan(each) for each in record]
    return None if isinstance(record, float) and not np.isfinite(record) else record
