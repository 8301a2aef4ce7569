"""A distance matrix in the order of a hierarchical clustering.

All pairs of states of the slippery FrozenLake. Rows and columns are the leaves of an
average-linkage dendrogram, so that similar states are neighbours and groups appear as blocks.
"""

import warnings

from bisimetric import exact, views, worlds
from bisimetric.errors import ExpectedRewardWarning

# On slippery ice the reward depends on the successor; its expectation is used.
warnings.simplefilter("ignore", ExpectedRewardWarning)
mdp = worlds.load("FrozenLake-v1", discount=0.95)
views.save_figure(views.plot_heatmap(exact.bisimulation(mdp)), "heatmap.png")
