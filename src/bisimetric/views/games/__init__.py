"""Figures and videos of Atari games: distances over an episode, its extreme frames, training.

`plot_episode_curve` and `plot_extremes` take an `Episode` and one distance per frame;
`write_video` and `write_sorted_video` take them too and write an MP4. `plot_agent_curve`,
`plot_metric_curve` and `plot_sweep` take plain arrays. Functions named `plot_...` return a
Matplotlib `Figure`.

>>> from bisimetric.games import play
>>> from bisimetric.games.agent import IdleAgent
>>> from bisimetric.views import games
>>> episode = play("Pong", IdleAgent("Pong"), max_steps=40)
>>> distances = abs(episode.features - episode.features[0]).sum(axis=1)
>>> games.plot_episode_curve(episode, distances).get_suptitle()
'Pong'
"""

from __future__ import annotations

from bisimetric.views.games.episode_figures import plot_episode_curve, plot_extremes
from bisimetric.views.games.training import plot_agent_curve, plot_metric_curve, plot_sweep
from bisimetric.views.games.videos import write_sorted_video, write_video

__all__ = [
    "plot_agent_curve",
    "plot_episode_curve",
    "plot_extremes",
    "plot_metric_curve",
    "plot_sweep",
    "write_sorted_video",
    "write_video",
]
