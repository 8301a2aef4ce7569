"""`bisimetric explain` and `bisimetric show`: what is in a saved table, and why."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from tyro.conf import arg

from bisimetric.cli.arguments import DistanceArg, FigureArg, FigureOptions, StateArg
from bisimetric.cli.learning import read_label
from bisimetric.errors import InputError

FigurePathArg = Annotated[Path | None, arg(metavar="PNG", help_behavior_hint="")]


def explain(path: DistanceArg, first: StateArg, second: StateArg) -> None:
    """Why two states are as far apart as they are: the steps that add up to their distance.

    Args:
        table: a table saved with -o: a file, or the folder of a sharded one
        first: a state, by name or id
        second: another one

    Examples:
        bisimetric explain d.npz 1,5 5,5
        bisimetric explain d.npz 0 30
    """
    if read_label(path) is not None:
        raise InputError(
            f"{path} is a network, not a table, and has no steps to explain; `bisimetric learned "
            "... --table d.npz` makes the table of a world."
        )
    from bisimetric.distance import Distance

    print(Distance.load(path).explain(first, second))


def show(
    path: DistanceArg,
    figures: FigureArg,
    nearest: Annotated[int, arg(metavar="K")] = 5,
    plot_training: FigurePathArg = None,
) -> None:
    """What is in a saved table: how it was made, a map, the nearest states, and pictures.

    Args:
        table: a table saved with -o, a file or a folder; or a network that `learned` saved
        nearest: how many of the nearest states to list
        curve: of a network, save a picture of its loss over the steps

    Examples:
        bisimetric show d.npz --from 4,3 --nearest 10
        bisimetric show d.npz --from 4,3 --plot map.png --heatmap table.png --all-maps all.png
        bisimetric show d.safetensors --curve curve.png
    """
    figures.validate()
    FigureOptions(plot_map=plot_training).validate()
    label = read_label(path)
    if label is not None:
        _show_network(path, label, figures, plot_training)
        return
    if plot_training is not None:
        raise InputError(f"--curve is for a network that `learned` saved, and {path} is none.")
    from bisimetric import views
    from bisimetric.cli import report
    from bisimetric.distance import Distance

    distance = Distance.load(path)
    figures.validate_states(distance.mdp)
    origin = distance.mdp.state(figures.origin)
    near = report.describe_nearest(distance, origin, nearest)
    drawn = [views.format_terminal_map(distance, origin)]
    learned = distance.metadata.get("method") == "learned"
    said = ["learned    by a network: an approximation, nothing is proven"] if learned else []
    made = report.describe_metadata(distance)
    report.print_lines(report.describe_distance(distance), said, made, [""], near, [""], drawn)
    figures.draw(distance)
    report.print_lines(report.describe_saved(figures.paths))


def _show_network(
    path: Path, label: dict[str, Any], figures: FigureOptions, plot_training: Path | None
) -> None:
    """What a file of `learned` holds, and its training as a picture."""
    if figures.paths:
        raise InputError(
            f"cannot draw {figures.paths[0]}: {path} is a network, not a table; `bisimetric "
            "learned ... --table d.npz` makes the table of a world, and --curve draws its training."
        )
    from bisimetric.cli import networks, report

    found = networks.read_learned_file(path, label)
    try:
        lines, title = list(networks.describe_file(found)), found.title
    except (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError) as error:
        what = f"it has no {error}" if isinstance(error, KeyError) else str(error)
        raise InputError(
            f"{path} does not say how it was learned ({what}); Learned.load reads its network."
        ) from None
    report.print_lines(lines)
    if plot_training is not None:
        from bisimetric import views

        views.save_figure(views.plot_training_curve(found.history, title=title), plot_training)
    report.print_lines(report.describe_saved([plot_training]))
