"""Distances from one state on a map.

The lax bisimulation metric of an open grid at discount 0.9, seen from one cell. Cells at the same
distance from the goal are near each other, in whichever direction it lies.
"""

from bisimetric import exact, views, worlds

mdp = worlds.load("open-grid", rows=12, columns=12, obstacles=0.15, seed=3, discount=0.9)
figure = views.plot_distances_from(exact.lax(mdp), "5,3")
views.save_figure(figure, "distance_map.png")
