"""Exploration with a novelty bonus.

Tabular Q-learning in four rooms where only the goal pays, without a bonus, with a bonus from visit
counts, and with a bonus from visits to states that are near by the exact metric. That metric
encodes where the goal is, which visit counts do not know.
"""

from bisimetric import exact, views, worlds
from bisimetric.uses.exploration.experiment import ExplorationArm, compare

ROOMS = """
*************
*     *     *
*           *
*     *     *
** ****** ***
*     *     *
*          g*
*     *     *
*************
"""
grid = worlds.grid(ROOMS, discount=0.9)
mdp = grid.replace(R=grid.R.clip(min=0.0))  # walls cost nothing
arms = {
    "no bonus": ExplorationArm("none"),
    "counts": ExplorationArm("states"),
    "distance": ExplorationArm("distance", exact.bisimulation(mdp)),
}
found = compare(mdp.replace(discount=0.99), arms, steps=5_000, num_seeds=8)
views.save_figure(views.plot_exploration({"four rooms": found}), "exploration.png")
