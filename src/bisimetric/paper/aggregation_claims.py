"""The claims of the supplement of Castro (2020) about aggregated states, over many clusterings.

States are sampled around the cells of the paper's 31 states and clustered by learned distances of
several seeds, for several draws of the noise and numbers of clusters.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bisimetric import exact, worlds
from bisimetric._progress import show_progress
from bisimetric.learned import LearnedDistance
from bisimetric.paper.aggregation import (
    NUM_BISECTIONS,
    PAPER_THRESHOLD,
    cluster_as_printed,
    compute_distances,
    measure_claims,
    sample_points,
)
from bisimetric.paper.gridworld import DISCOUNT, NOISE_CLIP, cell_centres
from bisimetric.paper.gridworld_curves import NOISE
from bisimetric.paper.theory_claims import count_steps_to_goal
from bisimetric.uses.aggregation.clustering_algorithms import (
    cluster_incrementally,
    find_smallest_radius,
)

CLUSTER_COUNTS = (4, 8, 12, 16, 24, 31)
"""Largest numbers of clusters; 31 is one per cell."""

HALLWAY = "4,3"
"""The name of the state between the two rooms."""

SIGNIFICANCE = 0.05


def measure(
    networks: Mapping[str, LearnedDistance],
    *,
    num_draws: int = 5,
    cluster_counts: Sequence[int] = CLUSTER_COUNTS,
    samples_per_cell: int = 100,
) -> list[dict[str, Any]]:
    """Cluster samples by the distances of several networks and measure the claims on each.

    Args:
        networks: learned distances of the noisy MDP by name.
        num_draws: draws of the noise, with seeds 0, 1, ...
        cluster_counts: for each of them, the smallest threshold with at most this many clusters.
        samples_per_cell: samples per cell.

    Returns:
        One record per network, draw and clustering. `rule` is "incremental", the paper's algorithm
        with members kept; "printed", its code, at the paper's threshold of 0.86; and "exact" for
        the exact distances, which do not depend on the noise.
    """
    mdp = worlds.load("mirrored-rooms", discount=DISCOUNT)
    hallway, steps = mdp.state(HALLWAY), count_steps_to_goal(mdp)
    records = []
    with show_progress(len(networks) * num_draws, "clusterings") as progress:
        for done, (name, draw) in enumerate(itertools.product(networks, range(num_draws))):
            points, cells = sample_points(
                cell_centres(mdp),
                noise=NOISE,
                noise_clip=NOISE_CLIP,
                samples_per_state=samples_per_cell,
                seed=draw,
            )
            distances = compute_distances(networks[name], points, block_size=samples_per_cell)
            distances /= max(float(distances.max()), 1e-30)
            for rule, labels, threshold in _cluster(distances, cluster_counts):
                claims = measure_claims(labels, cells, steps, hallway, seed=draw)
                records.append(
                    {"network": name, "draw": draw, "rule": rule, "threshold": threshold}
                    | claims._asdict()
                )
            progress.set_position(done + 1)
    cells = np.arange(mdp.num_states)
    distances = exact.bisimulation(mdp).values
    for count in cluster_counts:
        threshold = find_smallest_radius(distances, count, num_bisections=40)
        claims = measure_claims(cluster_incrementally(distances, threshold), cells, steps, hallway)
        records.append(
            {
                "network": "exact",
                "draw": 0,
                "rule": "exact",
                "threshold": threshold / float(distances.max()),
            }
            | claims._asdict()
        )
    return records


def _cluster(
    distances: NDArray[np.float32], counts: Sequence[int]
) -> Iterator[tuple[str, NDArray[np.int64], float]]:
    """Yield the rule, the labels and the threshold of each clustering."""
    yield "printed", cluster_as_printed(distances, PAPER_THRESHOLD), PAPER_THRESHOLD
    yield "at 0.86", cluster_incrementally(distances, PAPER_THRESHOLD), PAPER_THRESHOLD
    for count in counts:
        threshold = find_smallest_radius(distances, count, num_bisections=NUM_BISECTIONS)
        yield f"at most {count}", cluster_incrementally(distances, threshold), threshold
