"""FrozenLake, seen from a cell near the goal.

The bisimulation metric of the slippery 8x8 lake at discount 0.95. Holes
and the goal are absorbing states without reward, so all are equally far. The start is hardly
nearer, and the cells beside the goal are the farthest.
"""

import warnings

from bisimetric import exact, views, worlds
from bisimetric.errors import ExpectedRewardWarning

warnings.simplefilter("ignore", ExpectedRewardWarning)
mdp = worlds.load("FrozenLake-v1", map_name="8x8", discount=0.95)
views.save_figure(views.plot_distances_from(exact.bisimulation(mdp), "4,7"), "frozen_lake.png")
