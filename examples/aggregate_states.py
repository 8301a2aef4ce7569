"""State aggregation by distance: the regret of the lifted policy and its bound.

On the paper's 31 states, where the bounds of d~ and d_lax are vacuous: at least the trivial bound,
the largest regret of any policy. And on 186 states, six nearly bisimilar copies of each cell, where
they are far below it.
Writes aggregate.png. Run it with `python examples/aggregate_states.py`; `--full` tries all rules
and all numbers of classes, in half a minute, and draws the figure of docs/how-to/aggregate.md.
"""

import sys
from typing import Any

import numpy as np

from bisimetric import MDP, exact, planning, uses, views, worlds
from bisimetric.uses.aggregation.clustering import ClusteringRule

FULL = "--full" in sys.argv
RULES: tuple[ClusteringRule, ...] = ("incremental", "complete", "medoids")


def copy_states(mdp: MDP, times: int, noise: float, seed: int = 0) -> MDP:
    """Copy every state `times` times; moves lead to any copy, rewards differ by up to `noise`."""
    rng = np.random.default_rng(seed)
    shape = (mdp.num_states, times, mdp.num_actions)
    successors = times * mdp.next_state[:, None, :] + rng.integers(0, times, shape)
    rewards = mdp.R[:, None, :] + noise * rng.uniform(-1, 1, shape)
    flat = (mdp.num_states * times, mdp.num_actions)
    positions = np.repeat(np.asarray(mdp.positions), times, axis=0)
    return MDP.deterministic(
        successors.reshape(flat), rewards.reshape(flat), discount=mdp.discount, positions=positions
    )


def compute_distances(mdp: MDP) -> dict[str, Any]:
    """Compute three behavioural distances, and the Manhattan distance as a baseline."""
    return {
        "d~": exact.bisimulation(mdp),
        "d_lax": exact.lax(mdp),
        "d^pi, pi optimal": exact.on_policy(mdp, planning.greedy_policy(mdp)),
        "map": uses.manhattan_distances(mdp),
    }


rooms = worlds.load("mirrored-rooms", discount=0.99)
distances = compute_distances(rooms)
print("31 states in 11 classes by d_lax, complete linkage:")
print(uses.aggregate(rooms, distances["d_lax"], clusters=11, rule="complete"))
panels = {}
for rule in RULES if FULL else RULES[1:2]:
    curve = uses.aggregation_curve(rooms, distances, rule=rule)
    print(f"\n{rule}:\n{curve}")
    if rule == "complete":
        panels["31 states, discount 0.99"] = curve

many = copy_states(worlds.load("mirrored-rooms", discount=0.9), 6, noise=1e-4)
counts = range(1, 187) if FULL else (1, 4, 31, 93, 186)
curve = uses.aggregation_curve(many, compute_distances(many), clusters=counts, rule="complete")
panels["6 copies per cell, rewards differ by up to 0.0001, discount 0.9"] = curve
print(f"\n{many.num_states} states, complete:\n{curve}")
for name, aggregations in curve.aggregations.items():
    found = next(each for each in aggregations if len(each) >= 31)
    print(f"\n{name}; no policy has a regret above {found.trivial_bound:.4g}:\n{found}")

title = "Regret of the lifted policy (complete linkage)"
figure = views.plot_aggregation_curve(panels, title=title)
views.save_figure(figure, "aggregate.png")
print("saved aggregate.png")
