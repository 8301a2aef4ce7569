"""Intervals that contain the true distance, from growing data.

A random walk explores FrozenLake without slipping. The line is the sampled distance of two states,
a lower bound that increases with the data. The shaded interval contains the true distance. It
has no upper end until everything that the distance depends on was observed; then it collapses.
"""

import matplotlib.pyplot as plt
import numpy as np

from bisimetric import datasets, sampled

walk = datasets.rollout("FrozenLake-v1", steps=2_500, seed=0, is_slippery=False)
sizes = np.arange(50, 2_501, 50)
distances = [sampled.bisimulation(walk[:size], discount=0.9, seed=0) for size in sizes]

figure, panels = plt.subplots(1, 3, figsize=(9, 3.2), sharey=True, layout="constrained")
for axes, (s, t) in zip(panels, [("0,0", "2,0"), ("0,0", "3,2"), ("1,0", "1,2")], strict=True):
    lower, upper = np.transpose([d.bounds(s, t) for d in distances])
    axes.fill_between(sizes, lower, np.minimum(upper, 3), step="mid", color="#3b528b", alpha=0.15)
    axes.step(sizes, lower, where="mid", color="#3b528b")
    axes.set(title=f"{s} and {t}", xlabel="steps in the data", ylim=(0, 2.4))
panels[0].set_ylabel("interval of d~")
figure.savefig("sampled_bounds.png", dpi=150)
