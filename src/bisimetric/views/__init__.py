"""Pictures of distances: maps, all maps at once, heatmaps, and a map for the terminal.

Every view of a distance takes a `Distance`; `convergence`, `learning`, `training_curve`,
`comparison`, `clusters`, `classes`, `prediction` and `thinning` take arrays. `aggregation_curve`,
`covering`, `embedding`, `exploration` and `transferred` take what a use of a distance has found.
All return a Matplotlib `Figure`, the terminal's a text. `save` writes a figure.

>>> from bisimetric import exact, views, worlds
>>> d = exact.bisimulation(worlds.load("mirrored-rooms"))
>>> len(views.all_maps(d).axes)  # 31 maps and a colour bar
32
"""

from __future__ import annotations

from bisimetric.views.aggregation import aggregation_curve, classes
from bisimetric.views.comparison import comparison
from bisimetric.views.compression import covering, thinning
from bisimetric.views.convergence import convergence
from bisimetric.views.curves import training_curve
from bisimetric.views.embedding import embedding, prediction
from bisimetric.views.exploration import exploration
from bisimetric.views.heatmaps import heatmap
from bisimetric.views.learning import learning
from bisimetric.views.maps import all_maps, distances_from
from bisimetric.views.pictures import save
from bisimetric.views.scatter import clusters
from bisimetric.views.terminal import terminal_map
from bisimetric.views.transfer import transferred

__all__ = [
    "aggregation_curve",
    "all_maps",
    "classes",
    "clusters",
    "comparison",
    "convergence",
    "covering",
    "distances_from",
    "embedding",
    "exploration",
    "heatmap",
    "learning",
    "prediction",
    "save",
    "terminal_map",
    "thinning",
    "training_curve",
    "transferred",
]
