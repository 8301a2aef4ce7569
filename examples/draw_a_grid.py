"""Draw a grid as text and its distances as a figure: writes corridor.png.

Run it with `python examples/draw_a_grid.py`.
"""

from bisimetric import exact, views, worlds

GRID = """
*********
*   *  g*
* * * * *
* *   * *
*g*   * *
*********
"""

mdp = worlds.grid(GRID, discount=0.95)
d = exact.lax(mdp)
print(views.format_terminal_map(d, "1,1"))
views.save_figure(views.plot_distances_from(d, "1,1"), "corridor.png")
print("saved corridor.png")
