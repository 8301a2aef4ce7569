"""What happened in a game, marked over its steps: starts, lost lives, points."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from bisimetric.views.colours import ACCENT_COLOUR

if TYPE_CHECKING:
    from bisimetric.games import Episode

START_COLOUR = "#009e73"
LEVEL_COLOUR = "#e69f00"
POINT_COLOUR = "0.25"


@dataclasses.dataclass(frozen=True)
class EventMarks:
    """A kind of event, the frames `where` it shows, and how it is drawn.

    Starts are lines across the plot; all else has a row of small signs below it.
    """

    name: str
    frames: NDArray[np.int64]
    is_line: bool
    style: dict[str, Any]

    def format_label(self) -> str:
        """What it is, and how often it happened."""
        return f"{self.name} ({len(self.frames)})"


def find_events(episode: Episode) -> list[EventMarks]:
    """The events of an episode, those that happened: starts first, then lives, then points.

    Points and lost lives are marked at the last frame before they show, as in `Episode.events`.

    >>> from bisimetric.games import play
    >>> from bisimetric.games.idle import Idle
    >>> [mark.label() for mark in marks(play("Pong", Idle("Pong"), most=90))]
    ['game starts (1)', 'points lost (1)']
    """
    levels = np.zeros(0, np.int64) if episode.level_starts is None else episode.level_starts
    won, lost = (np.flatnonzero(sign * episode.rewards > 0) for sign in (1, -1))
    found = (
        EventMarks(
            "game starts", episode.starts, True, {"color": START_COLOUR, "lw": 1.4, "ls": "-"}
        ),
        EventMarks(
            "level starts", levels, True, {"color": LEVEL_COLOUR, "lw": 1.4, "ls": (0, (4, 1.5))}
        ),
        _build_signs("life lost", episode.life_losses, "X", ACCENT_COLOUR),
        _build_signs("points won", won, "^", POINT_COLOUR),
        _build_signs("points lost", lost, "v", LEVEL_COLOUR),
    )
    return [mark for mark in found if len(mark.frames)]


def draw_event_lines(axes: Axes, events: list[EventMarks]) -> None:
    """The starts, across a plot, behind its curves."""
    for mark in events:
        for step in mark.frames if mark.is_line else ():
            axes.axvline(step, **mark.style, zorder=1)


def draw_event_rows(axes: Axes, events: list[EventMarks], size: float) -> None:
    """One row of signs a kind of event, the first on top."""
    rows = [mark for mark in events if not mark.is_line]
    for height, mark in enumerate(reversed(rows)):
        axes.axhline(height, color="0.88", lw=0.6, zorder=0)
        axes.plot(
            mark.frames,
            np.full(len(mark.frames), height),
            **mark.style | {"ms": size},
            clip_on=False,
        )
    axes.set_ylim(-0.6, max(len(rows), 1) - 0.4)
    axes.set_yticks([])
    axes.spines[["top", "right", "left"]].set_visible(False)


def build_event_handles(events: list[EventMarks]) -> list[Line2D]:
    """One entry of a legend a kind of event."""
    return [Line2D([], [], **mark.style, label=mark.format_label()) for mark in events]


def _build_signs(name: str, frames: NDArray[np.int64], marker: str, colour: str) -> EventMarks:
    style = {"color": colour, "ls": "none", "marker": marker, "mec": "none"}
    return EventMarks(name, frames, False, style)
