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

from bisimetric.errors import InputError, whole
from bisimetric.files import check_writable, written_beside
from bisimetric.games import Agent, Episode, Game, collect, game, play
from bisimetric.games.episodes import LEAST
from bisimetric.games.experience import COUNT
from bisimetric.games.players import EPSILON
from bisimetric.learned import Learned
from bisimetric.paper.atari import observations
from bisimetric.paper.atari.learning import STEPS
from bisimetric.paper.atari.observations import Observation
from bisimetric.transitions import Transitions

METRICS = Path(__file__).parent / "metrics"
"""The metrics that are shipped, one a game: `<game>.safetensors`."""

EPISODES, MOST = 5, 2_000
FIGURES = ("distances.png", "frames.png", "learning.png", "training.png")
FILMS = ("episode.mp4", "sorted.mp4")
PAGE = "explore.html"


def gathered(
    name: str | Game,
    agent: Agent,
    *,
    steps: int = STEPS,
    count: int = COUNT,
    epsilon: float = EPSILON,
    key: int = 0,
    clip: bool = True,
    threads: int = 0,
    data: str | os.PathLike[str] | None = None,
) -> Transitions:
    """Steps of an agent: read from the file `data` where it is there, else collected, and kept.

    The other arguments are those of `games.collect`.
    """
    played = game(name)
    if data is not None and Path(data).exists():
        found = Transitions.load(data)
        wanted = {"game": played.name, "agent": agent.name, "clip": clip}
        for what, here in wanted.items():
            if found.made.get(what) != here:
                raise InputError(
                    f"{data} holds other steps: its {what} is {found.made.get(what)} and here it "
                    f"is {here}; name another file."
                )
        return found[:steps] if len(found) > steps else found
    if data is not None:
        check_writable(data)
    found = collect(
        played,
        agent,
        steps=steps,
        count=count,
        epsilon=epsilon,
        key=key,
        clip=clip,
        threads=threads,
    )
    if data is not None:
        found.save(data)
    return found


def metric_for(named: str | os.PathLike[str] | None, name: str | Game, agent: Agent) -> Learned:
    """The metric in a file, or the one that is shipped for a game; it must fit the agent."""
    played = game(name)
    if named is None:
        path = METRICS / f"{played.name}.safetensors"
        if not path.exists():
            there = sorted(each.stem for each in METRICS.glob("*.safetensors"))
            raise InputError(
                f"{played.name}: no metric is shipped for it"
                + (f", only for {', '.join(there)}" if there else "")
                + f"; learn one with `bisimetric atari learn {played.name}` and name its file."
            )
    else:
        path = Path(named)
    metric = Learned.load(path)
    of = metric.made.get("game")
    if of != played.name:
        raise InputError(f"{path} is of {of or 'no game'} and not of {played.name}; name another.")
    if len(metric.scale.shift) != agent.num_features:
        raise InputError(
            f"{path} is for {len(metric.scale.shift)} features and {agent.name} has "
            f"{agent.num_features}; name the agent that it was learned with, "
            f"{metric.made.get('agent')}."
        )
    return metric


@dataclasses.dataclass(frozen=True, eq=False)
class Shown:
    """An episode, the distance of each of its frames to the frame `source`, and what it shows."""

    episode: Episode
    agent: Agent
    metric: Learned
    source: int
    distances: NDArray[np.float64]
    observations: list[Observation]


def measured(
    name: str | Game,
    agent: Agent,
    metric: Learned,
    *,
    episodes: int = EPISODES,
    most: int = MOST,
    source: int = 0,
    epsilon: float = EPSILON,
    key: int = 0,
    window: int = observations.WINDOW,
) -> Shown:
    """Plays so many `episodes` or `most` steps, and measures all frames from the frame `source`."""
    played = game(name)
    most = whole(played.name, "most", most, LEAST)
    if not 0 <= whole(played.name, "source", source) < most:
        raise InputError(f"{played.name}: source is frame {source} and at most {most} are played.")
    episode = play(played, agent, episodes=episodes, most=most, epsilon=epsilon, key=key)
    if source >= len(episode):
        raise InputError(
            f"{played.name}: source is frame {source} and the games ended after {len(episode)}; "
            "name an earlier one, or play more episodes."
        )
    distances = np.asarray(
        metric.table(episode.features[[source]], episode.features)[0], np.float64
    )
    found = observations.observed(
        episode,
        distances,
        source=source,
        window=window,
        discount=metric.discount,
        clip=bool(metric.made.get("clip", True)),
    )
    return Shown(episode, agent, metric, source, distances, found)


def drawn(
    shown: Shown, folder: str | os.PathLike[str], *, films: bool = True, **about: Any
) -> list[Path]:
    """Writes figures, films and numbers of what was measured; `about` goes with the numbers."""
    from bisimetric import explorer, views
    from bisimetric.views import games

    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    episode, d, source = shown.episode, shown.distances, shown.source
    what = f"{episode.game}: distance of every frame to frame {source}"
    views.save(games.curve(episode, d, source=source, title=what), target / FIGURES[0])
    views.save(games.extremes(episode, d, source=source), target / FIGURES[1])
    paths = [target / name for name in FIGURES[:2]]
    if "step" in shown.metric.history:
        curves = games.metric_curve({episode.game: shown.metric.history})
        views.save(curves, target / FIGURES[2])
        paths.append(target / FIGURES[2])
    trained = getattr(shown.agent, "history", {})
    if "step" in trained:
        views.save(games.agent_curve({episode.game: trained}), target / FIGURES[3])
        paths.append(target / FIGURES[3])
    if films:
        paths.append(games.video(episode, d, target / FILMS[0], source=source))
        paths.append(games.ranked_video(episode, d, target / FILMS[1], source=source))
    paths.append(target / PAGE)
    explorer.save(page(shown), paths[-1])
    record = {
        **about,
        "source": source,
        "episode": episode.made,
        "scores": episode.scores.tolist(),
        "frames": len(episode),
        "metric": shown.metric.made,
        "observations": observations.as_json(shown.observations),
    }
    with written_beside(target / "observations.json") as beside:
        beside.write_text(json.dumps(_plain(record), indent=1) + "\n", encoding="utf-8")
    return [*paths, target / "observations.json"]


def page(shown: Shown) -> str:
    """The episode as a page on which any frame can be the source; of a long one, some frames."""
    from bisimetric import explorer
    from bisimetric.explorer.episodes import MOST_FRAMES

    episode = shown.episode
    times = np.unique(np.linspace(0, len(episode) - 1, MOST_FRAMES).round().astype(np.int64))
    # A network does not know that a frame is at distance 0 of itself.
    table = np.array(shown.metric.table(episode.features[times]))
    np.fill_diagonal(table, 0.0)
    return explorer.episode(
        episode.screens[times],
        table,
        times=times,
        palette=episode.palette,
        values=episode.values[times],
        marks={at: ", ".join(said) for at, said in _marks(episode).items()},
        of=len(episode),
        source=shown.source,
        title=f"{episode.game}, played by {episode.made.get('agent', 'an agent')}",
        words="learned on-policy distance",
    )


def _marks(episode: Episode) -> dict[int, list[str]]:
    """What happened, by frame, in words."""
    events = {"game starts": episode.starts, "life lost": episode.losses}
    if episode.levels is not None:
        events["level starts"] = episode.levels
    found: dict[int, list[str]] = {}
    for words, at in events.items():
        for each in at:
            found.setdefault(int(each), []).append(words)
    return dict(sorted(found.items()))


def _plain(record: Any) -> Any:
    """What JSON has no word for, NaN, as None."""
    if isinstance(record, dict):
        return {name: _plain(each) for name, each in record.items()}
    if isinstance(record, Sequence) and not isinstance(record, str):
        return [_plain(each) for each in record]
    return None if isinstance(record, float) and not np.isfinite(record) else record
