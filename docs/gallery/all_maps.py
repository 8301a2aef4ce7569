"""Small multiples: distances from every state.

One map per state of the paper's two rooms, all on one colour scale; the source of each map is
outlined. The lax bisimulation metric at discount 0.9.
"""

from bisimetric import exact, views, worlds

mdp = worlds.load("mirrored-rooms", discount=0.9)
views.save_figure(views.plot_all_maps(exact.lax(mdp)), "all_maps.png")
