"""Distances between frames that need no metric: of pixels, of features, and of values.

The paper asks for distances "beyond simple pixel differences". These baselines turn that into
numbers: each observation is checked for them in the same way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from bisimetric_atari.games import Episode
from bisimetric_atari.paper import claims
from bisimetric_atari.paper.claims import Claim

Baselines = dict[str, list[Claim]]


def compute_baselines(episode: Episode, source: int) -> dict[str, NDArray[np.float64]]:
    """Compute distances of all frames to the frame `source`, by baseline.

    Args:
        episode: a recording of n frames.
        source: index of the source frame.

    Returns:
        (n,) each: `pixels`, the mean absolute difference of RGB (only with screens); `features`,
        the Euclidean distance of the agent's features; `values`, the absolute difference of its
        values.

    >>> from bisimetric_atari.games import IdleAgent, play
    >>> found = compute_baselines(play("Pong", IdleAgent("Pong"), max_steps=5), 0)
    >>> {name: float(series[0]) for name, series in found.items()}
    {'pixels': 0.0, 'features': 0.0, 'values': 0.0}
    """
    found: dict[str, NDArray[np.float64]] = {}
    if episode.has_screens:
        # A table of all pairs of colours, so that no frame is rendered.
        colours = episode.palette.astype(np.float64)
        table = np.abs(colours[:, None] - colours).mean(axis=2)
        origin = episode.screens[source]
        found["pixels"] = np.array([table[origin, screen].mean() for screen in episode.screens])
    features = episode.features.astype(np.float64)
    found["features"] = np.linalg.norm(features - features[source], axis=1)
    values = episode.values.astype(np.float64)
    found["values"] = np.abs(values - values[source])
    return found


def check_baselines(
    episode: Episode,
    *,
    source: int,
    window: int = claims.WINDOW,
    discount: float = 0.99,
    clip_rewards: bool = True,
) -> Baselines:
    """Check all claims for each baseline.

    Args:
        episode: a recording of n frames.
        source: index of the source frame.
        window: steps around an event that belong to it.
        discount: of the exact distances.
        clip_rewards: whether the exact distances are those of clipped rewards.

    Returns:
        By baseline, the claims in the order of `claims.check_claims`.
    """
    options = {"window": window, "discount": discount, "clip_rewards": clip_rewards}
    return {
        name: claims.check_claims(episode, series, source=source, **options)  # type: ignore[arg-type]
        for name, series in compute_baselines(episode, source).items()
    }


STATISTICS = ("auc", "correlation", "fraction")
"""The statistic that compares a claim over distances of different units."""


def format_table(found: Sequence[Claim], baselines: Mapping[str, Sequence[Claim]]) -> list[str]:
    """Return the lines of a table: the statistic of each claim for the metric and the baselines.

    A star marks where the claim holds.
    """
    columns = {"metric": found, **baselines}
    width = max(len(claim.name) for claim in found)
    lines = ["  " + " " * width + "".join(f"{name:>10}" for name in columns)]
    for row, claim in enumerate(found):
        cells = [_format_cell(each[row]) for each in columns.values()]
        lines.append(f"  {claim.name:<{width}}" + "".join(f"{cell:>10}" for cell in cells))
    return lines


def _format_cell(claim: Claim) -> str:
    statistic = get_statistic(claim)
    return "-" if statistic is None else f"{statistic:.2f}{'*' if claim.holds else ' '}"


def get_statistic(claim: Claim) -> float | None:
    """Return the scale-free statistic of a claim; None if it is undecided."""
    return next((claim.statistics[name] for name in STATISTICS if name in claim.statistics), None)
