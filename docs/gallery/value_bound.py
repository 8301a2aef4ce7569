"""Differences in value are at most the distance.

Each point is a pair of states of the slippery FrozenLake. The line is the theorem
`|V*(s) - V*(t)| <= d(s, t)`: no point is above it, and many are close to it.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np

from bisimetric import exact, planning, worlds
from bisimetric.errors import ExpectedRewardWarning

warnings.simplefilter("ignore", ExpectedRewardWarning)
mdp = worlds.load("FrozenLake-v1", map_name="8x8", discount=0.95)
V = planning.optimal_values(mdp).values
pairs = np.triu_indices(mdp.num_states, 1)

figure, panels = plt.subplots(1, 2, figsize=(8.4, 4), sharey=True, layout="constrained")
for axes, solve, name in zip(panels, (exact.lax, exact.bisimulation), ("d_lax", "d~"), strict=True):
    distances, differences = solve(mdp).values[pairs], np.abs(V[:, None] - V)[pairs]
    axes.scatter(distances, differences, s=5, alpha=0.35, color="#3b528b", lw=0)
    axes.axline((0, 0), slope=1, color="#e4007c", lw=1.2, label="bound")
    axes.set(xlabel=name, xlim=(-0.02, 0.86), ylim=(-0.02, 0.86))
panels[0].set_ylabel("difference of V*")
panels[0].legend(loc="upper left")
figure.savefig("value_bound.png", dpi=150)
