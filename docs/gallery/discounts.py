"""The discount sets the scale of distances.

`(1 - discount) d_lax` of all pairs of states of the paper's two rooms. At a small discount only the
next rewards count, and distances differ widely; near 1 almost all are equal.
"""

import matplotlib.pyplot as plt
import numpy as np

from bisimetric import exact, worlds

discounts = (0.5, 0.7, 0.8, 0.9, 0.95, 0.99)
mdp = worlds.load("mirrored-rooms")
pairs = np.triu_indices(mdp.num_states, 1)

figure, axes = plt.subplots(figsize=(6.4, 3.8), layout="constrained")
for place, discount in enumerate(discounts):
    scaled = (1 - discount) * exact.lax(mdp.replace(discount=discount)).values[pairs]
    axes.violinplot([scaled], positions=[place], widths=0.85, showextrema=False)
    axes.collections[-1].set(facecolor=plt.get_cmap("viridis")(place / 6), alpha=0.85)
axes.set_xticks(range(len(discounts)), [str(discount) for discount in discounts])
axes.set(xlabel="discount", ylabel="(1 - discount) d_lax", ylim=(0, 1.1))
figure.savefig("discounts.png", dpi=150)
