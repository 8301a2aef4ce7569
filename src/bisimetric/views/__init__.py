"""Figures of distances and of their uses, and maps for the terminal.

Views of a distance take a `Distance`: `plot_distances_from`, `plot_all_maps`, `plot_heatmap`,
`format_terminal_map`. Curves and comparisons take arrays: `plot_convergence`,
`plot_learning_curves`, `plot_training_curve`, `plot_comparison`, `plot_clusters`, `plot_classes`,
`plot_prediction_error`, `plot_compression_regret`, `plot_final_errors`, `plot_agent_curve`,
`plot_metric_curve`, `plot_sweep`, `plot_scores`. The others take the result of a use:
`plot_aggregation_curve`, `plot_covering_radius`, `plot_embedding`, `plot_exploration`,
`plot_transfer`. Functions named `plot_...` return a Matplotlib `Figure`; `save_figure` writes it.

>>> from bisimetric import exact, views, worlds
>>> d = exact.bisimulation(worlds.load("mirrored-rooms"))
>>> len(views.plot_all_maps(d).axes)  # 31 maps and a colour bar
32
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bisimetric.views._figure import save_figure
    from bisimetric.views.clusters import plot_aggregation_curve, plot_classes, plot_clusters
    from bisimetric.views.compression import plot_compression_regret, plot_covering_radius
    from bisimetric.views.dot_plots import plot_final_errors, plot_scores
    from bisimetric.views.embedding import plot_embedding, plot_prediction_error
    from bisimetric.views.error_curves import plot_convergence, plot_learning_curves
    from bisimetric.views.exploration import plot_exploration
    from bisimetric.views.heatmap import plot_comparison, plot_heatmap
    from bisimetric.views.history_curves import plot_agent_curve, plot_metric_curve, plot_sweep
    from bisimetric.views.maps import plot_all_maps, plot_distances_from
    from bisimetric.views.terminal import format_terminal_map
    from bisimetric.views.training_curve import plot_training_curve
    from bisimetric.views.transfer import plot_transfer

__all__ = [
    "format_terminal_map",
    "plot_agent_curve",
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
    "plot_final_errors",
    "plot_heatmap",
    "plot_learning_curves",
    "plot_metric_curve",
    "plot_prediction_error",
    "plot_scores",
    "plot_sweep",
    "plot_training_curve",
    "plot_transfer",
    "save_figure",
]

# Names are imported at first use: text for the terminal needs no Matplotlib.
_DEFINING_MODULES = {
    "format_terminal_map": "terminal",
    "plot_agent_curve": "history_curves",
    "plot_aggregation_curve": "clusters",
    "plot_all_maps": "maps",
    "plot_classes": "clusters",
    "plot_clusters": "clusters",
    "plot_comparison": "heatmap",
    "plot_compression_regret": "compression",
    "plot_convergence": "error_curves",
    "plot_covering_radius": "compression",
    "plot_distances_from": "maps",
    "plot_embedding": "embedding",
    "plot_exploration": "exploration",
    "plot_final_errors": "dot_plots",
    "plot_heatmap": "heatmap",
    "plot_learning_curves": "error_curves",
    "plot_metric_curve": "history_curves",
    "plot_prediction_error": "embedding",
    "plot_scores": "dot_plots",
    "plot_sweep": "history_curves",
    "plot_training_curve": "training_curve",
    "plot_transfer": "transfer",
    "save_figure": "_figure",
}


def __getattr__(name: str) -> Any:
    if name in _DEFINING_MODULES:
        module = importlib.import_module(f"bisimetric.views.{_DEFINING_MODULES[name]}")
        return getattr(module, name)
    raise AttributeError(f"module 'bisimetric.views' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *__all__]
