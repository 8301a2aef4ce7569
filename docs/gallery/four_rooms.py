"""MiniGrid's four rooms from the start.

Each cell is a square of four, one part per direction of the agent. The lax metric at discount 0.95
shows how far the agent has to go, through which door.
"""

from bisimetric import exact, views, worlds

mdp = worlds.load("MiniGrid-FourRooms-v0", seed=0, discount=0.95)
figure = views.plot_distances_from(exact.lax(mdp), 0)
views.save_figure(figure, "four_rooms.png")
