"""Regret of aggregation, and its bound.

The policy of the aggregated MDP is lifted to all states. Solid lines are its realised regret in the
worst state, dashed lines the bound that is proven in advance. Bounds at or above the line across
are vacuous.
"""

import warnings

from bisimetric import exact, uses, views, worlds
from bisimetric.errors import ExpectedRewardWarning

warnings.simplefilter("ignore", ExpectedRewardWarning)
mdp = worlds.load("FrozenLake-v1", map_name="8x8", discount=0.9)
distances = {"d_lax": exact.lax(mdp), "d~": exact.bisimulation(mdp)}
curve = uses.aggregation_curve(mdp, distances, rule="medoids")
figure = views.plot_aggregation_curve({"FrozenLake 8x8, discount 0.9": curve})
views.save_figure(figure, "aggregation_regret.png")
