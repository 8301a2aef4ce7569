"""Pictures of games: distances over an episode, its frames at both ends, videos, and training.

`curve` and `extremes` take an `Episode` and one distance a frame, and return a Matplotlib `Figure`,
as do `agent_curve`, `metric_curve` and `sweep`, which take plain arrays. `video` and `ranked_video`
take an `Episode` too, and write an mp4.

>>> from bisimetric.games import play
>>> from bisimetric.games.agent import Idle
>>> from bisimetric.views import games
>>> episode = play("Pong", Idle("Pong"), most=40)
>>> games.curve(episode, abs(episode.features - episode.features[0]).sum(axis=1)).get_suptitle()
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
