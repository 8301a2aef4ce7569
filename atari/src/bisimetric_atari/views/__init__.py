"""Figures and videos of Atari games: distances over an episode, and its extreme frames.

`plot_episode_curve` and `plot_extremes` take an `Episode` and one distance per frame, and return a
Matplotlib `Figure`; `write_video` and `write_sorted_video` take them too and write an MP4. Training
curves and sweeps are in `bisimetric.views`.

>>> from bisimetric_atari.games import IdleAgent, play
>>> from bisimetric_atari import views
>>> episode = play("Pong", IdleAgent("Pong"), max_steps=40)
>>> distances = abs(episode.features - episode.features[0]).sum(axis=1)
>>> views.plot_episode_curve(episode, distances).get_suptitle()
'Pong'
"""

from __future__ import annotations

from bisimetric_atari.views.episode_figures import plot_episode_curve, plot_extremes
from bisimetric_atari.views.videos import write_sorted_video, write_video

__all__ = ["plot_episode_curve", "plot_extremes", "write_sorted_video", "write_video"]
