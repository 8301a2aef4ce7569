"""States as points, coloured by value.

Multidimensional scaling of the lax metric of a MiniGrid room with a door and a key: Euclidean
distances between points approximate distances between states.
"""

from bisimetric import exact, planning, uses, views, worlds

mdp = worlds.load("MiniGrid-DoorKey-5x5-v0", seed=3, discount=0.9)
embedding = uses.embed(exact.lax(mdp), 2, method="metric")
figure = views.plot_embedding(embedding, planning.optimal_values(mdp), label="V*")
views.save_figure(figure, "embedding.png")
