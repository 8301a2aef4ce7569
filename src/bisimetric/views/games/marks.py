"""What happened in a game, marked over its steps: starts, lost lives, points."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from bisimetric.views.colours import SOURCE

if TYPE_CHECKING:
    from bisimetric.games import Episode

STARTS = "#009e73"
LEVELS = "#e69f00"
POINTS = "0.25"


@dataclasses.dataclass(frozen=True)
class Mark:
    """A kind of event, the frames `where` it shows, and how it is drawn.

    Starts are lines across the plot; all else has a row of small signs below it.
    """

    name: str
    where: NDArray[np.int64]
    line: bool
    style: dict[str, Any]

    def label(self) -> str:
        """What it is, and how often it happened."""
        return f"{self.name} ({len(self.where)})"


def marks(episode: Episode) -> list[Mark]:
    """The events of an episode, those that happened: starts first, then lives, then points.

    Points and lost lives are marked at the last frame before they show, as in `Episode.events`.

    >>> from bisimetric.games import play
    >>> from bisimetric.games.idle import Idle
    >>> [mark.label() for mark in marks(play("Pong", Idle("Pong"), most=90))]
    ['game starts (1)', 'points lost (1)']
    """
    levels = np.zeros(0, np.int64) if episode.levels is None else episode.levels
    won, lost = (np.flatnonzero(sign * episode.rewards > 0) for sign in (1, -1))
    found = (
        Mark("game starts", episode.starts, True, {"color": STARTS, "lw": 1.4, "ls": "-"}),
        Mark("level starts", levels, True, {"color": LEVELS, "lw": 1.4, "ls": (0, (4, 1.5))}),
        _signs("life lost", episode.losses, "X", SOURCE),
        _signs("points won", won, "^", POINTS),
        _signs("points lost", lost, "v", LEVELS),
    )
    return [mark for mark in found if len(mark.where)]


def draw_lines(axes: Axes, found: list[Mark]) -> None:
    """The starts, across a plot, behind its curves."""
    for mark in found:
        for step in mark.where if mark.line else ():
            axes.axvline(step, **mark.style, zorder=1)


def draw_rows(axes: Axes, found: list[Mark], size: float) -> None:
    """One row of signs a kind of event, the first on top."""
    rows = [mark for mark in found if not mark.line]
    for height, mark in enumerate(reversed(rows)):
        axes.axhline(height, color="0.88", lw=0.6, zorder=0)
        axes.plot(
            mark.where, np.full(len(mark.where), height), **mark.style | {"ms": size}, clip_on=False
        )
    axes.set_ylim(-0.6, max(len(rows), 1) - 0.4)
    axes.set_yticks([])
    axes.spines[["top", "right", "left"]].set_visible(False)


def legend_handles(found: list[Mark]) -> list[Line2D]:
    """One entry of a legend a kind of event."""
    return [Line2D([], [], **mark.style, label=mark.label()) for mark in found]


def _signs(name: str, where: NDArray[np.int64], marker: str, colour: str) -> Mark:
    style = {"color": colour, "ls": "none", "marker": marker, "mec": "none"}
    return Mark(name, where, False, style)
