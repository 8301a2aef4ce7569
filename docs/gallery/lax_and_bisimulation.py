"""The lax metric against the bisimulation metric.

Each point is a pair of states of a MiniGrid room with a door and a key. `d_lax` may match
different actions, so it is never larger than `d~`. On the horizontal axis lie mirror images, which
only `d_lax` recognises.
"""

import matplotlib.pyplot as plt
import numpy as np

from bisimetric import exact, worlds

mdp = worlds.load("MiniGrid-DoorKey-5x5-v0", seed=3, discount=0.9)
pairs = np.triu_indices(mdp.num_states, 1)
d, d_lax = (solve(mdp).values[pairs] for solve in (exact.bisimulation, exact.lax))

figure, axes = plt.subplots(figsize=(5.2, 4.6), layout="constrained")
points = axes.hexbin(d, d_lax, gridsize=40, bins="log", cmap="viridis", mincnt=1)
axes.axline((0, 0), slope=1, color="0.4", lw=1, ls="--", label="d_lax = d~")
axes.set(xlabel="d~", ylabel="d_lax", xlim=(0, None), ylim=(-0.05, None))
axes.legend(loc="upper left")
figure.colorbar(points, label="pairs of states")
figure.savefig("lax_and_bisimulation.png", dpi=150)
