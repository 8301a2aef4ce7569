"""States aggregated into classes.

The 64 states of the slippery FrozenLake in 20 classes by the lax metric. Where the goal is far,
large areas are merged; near the goal every cell is alone. The outlined states represent their
classes.
"""

import warnings

from bisimetric import exact, uses, views, worlds
from bisimetric.errors import ExpectedRewardWarning

warnings.simplefilter("ignore", ExpectedRewardWarning)
mdp = worlds.load("FrozenLake-v1", map_name="8x8", discount=0.9)
merged = uses.aggregate(mdp, exact.lax(mdp), clusters=20, rule="medoids")
title = f"20 classes: regret {merged.regret:.3f}"
figure = views.plot_classes(mdp, merged.labels, merged.representatives, title)
views.save_figure(figure, "aggregation_classes.png")
