"""Pictures of distances: maps, all maps at once, heatmaps, and a map for the terminal.

Every view of a distance takes a `Distance`; `convergence`, `learning`, `training_curve`,
`comparison` and `clusters` take arrays. All return a Matplotlib `Figure`, the terminal's a text.
`save` writes a figure.

>>> from bisimetric import exact, views, worlds
>>> d = exact.bisimulation(worlds.load("mirrored-rooms"))
>>> len(views.all_maps(d).axes)  # 31 maps and a colour bar
32
"""

from __future__ import annotations

from bisimetric.views.comparison import comparison
from bisimetric.views.convergence import convergence
from bisimetric.views.curves import training_curve
from bisimetric.views.heatmaps import heatmap
from bisimetric.views.learning import learning
from bisimetric.views.maps import all_maps, distances_from
from bisimetric.views.pictures import save
from bisimetric.views.scatter import clusters
from bisimetric.views.terminal import terminal_map

__all__ = [
    "all_maps",
    "clusters",
    "comparison",
    "convergence",
    "distances_from",
    "heatmap",
    "learning",
    "save",
    "terminal_map",
    "training_curve",
]
