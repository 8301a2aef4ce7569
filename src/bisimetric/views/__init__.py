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

from bisimetric.views._figure import save_figure
from bisimetric.views.clusters import plot_aggregation_curve, plot_classes, plot_clusters
from bisimetric.views.compression import plot_compression_regret, plot_covering_radius
from bisimetric.views.embedding import plot_embedding, plot_prediction_error
from bisimetric.views.error_curves import plot_convergence, plot_learning_curves
from bisimetric.views.exploration import plot_exploration
from bisimetric.views.heatmap import plot_comparison, plot_heatmap
from bisimetric.views.maps import plot_all_maps, plot_distances_from
from bisimetric.views.terminal import format_terminal_map
from bisimetric.views.training_curve import plot_training_curve
from bisimetric.views.transfer import plot_transfer

__all__ = [
    "format_terminal_map",
    "plot_aggregation_curve",
    "plot_all_maps",
    "plot_classes",
    "plot_clusters",
    "plot_comparison",
    "plot_compression_regret",
    "plot_convergence",
    "plot_covering_radius",
    "plot_distances_from",
    "plot_embedding",
    "plot_exploration",
    "plot_heatmap",
    "plot_learning_curves",
    "plot_prediction_error",
    "plot_training_curve",
    "plot_transfer",
    "save_figure",
]
