"""Pictures of distances: maps, all maps at once, heatmaps, and a map for the terminal.

Every view of a distance takes a `Distance`, and `convergence` takes arrays; all return a Matplotlib
`Figure`, the terminal's a text. `save` writes a figure.

>>> from bisimetric import exact, views, worlds
>>> d = exact.bisimulation(worlds.load("mirrored-rooms"))
>>> len(views.all_maps(d).axes)  # 31 maps and a colour bar
32
"""

from __future__ import annotations

from bisimetric.views.convergence import convergence
from bisimetric.views.heatmaps import heatmap
from bisimetric.views.maps import all_maps, distances_from
from bisimetric.views.pictures import save
from bisimetric.views.terminal import terminal_map

__all__ = ["all_maps", "convergence", "distances_from", "heatmap", "save", "terminal_map"]
