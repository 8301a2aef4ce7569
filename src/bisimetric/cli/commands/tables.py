"""`bisimetric explain` and `bisimetric show`: what is in a saved table, and why."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from tyro.conf import arg

from bisimetric.cli.arguments import Drawn, Pictures, State, Table
from bisimetric.cli.learning import label_of
from bisimetric.errors import InputError

Curve = Annotated[Path | None, arg(metavar="PNG", help_behavior_hint="")]


def explain(table: Table, first: State, second: State) -> None:
    """Why two states are as far apart as they are: the steps that add up to their distance.

    Args:
        table: a table saved with -o: a file, or the folder of a sharded one
        first: a state, by name or id
        second: another one

    Examples:
        bisimetric explain d.npz 1,5 5,5
        bisimetric explain d.npz 0 30
    """
    if label_of(table) is not None:
        raise InputError(
            f"{table} is a network, not a table, and has no steps to explain; `bisimetric learned "
            "... --table d.npz` makes the table of a world."
        )
    from bisimetric.distance import Distance

    print(Distance.load(table).explain(first, second))


def show(
    table: Table,
    pictures: Drawn,
    nearest: Annotated[int, arg(metavar="K")] = 5,
    curve: Curve = None,
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
    pictures.check()
    Pictures(plot=curve).check()
    label = label_of(table)
    if label is not None:
        _show_network(table, label, pictures, curve)
        return
    if curve is not None:
        raise InputError(f"--curve is for a network that `learned` saved, and {table} is none.")
    from bisimetric import views
    from bisimetric.cli import report
    from bisimetric.distance import Distance

    distance = Distance.load(table)
    pictures.check_world(distance.mdp)
    origin = distance.mdp.state(pictures.origin)
    near = report.nearest_lines(distance, origin, nearest)
    drawn = [views.terminal_map(distance, origin)]
    learned = distance.made.get("method") == "learned"
    said = ["learned    by a network: an approximation, nothing is proven"] if learned else []
    made = report.made_lines(distance)
    report.say(report.table_lines(distance), said, made, [""], near, [""], drawn)
    pictures.draw(distance)
    report.say(report.saved_lines(pictures.paths))


def _show_network(
    path: Path, label: dict[str, Any], pictures: Pictures, curve: Path | None
) -> None:
    """What a file of `learned` holds, and its training as a picture."""
    if pictures.paths:
        raise InputError(
            f"cannot draw {pictures.paths[0]}: {path} is a network, not a table; `bisimetric "
            "learned ... --table d.npz` makes the table of a world, and --curve draws its training."
        )
    from bisimetric.cli import networks, report

    found = networks.read(path, label)
    try:
        lines, title = list(networks.file_lines(found)), found.title
    except (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError) as error:
        what = f"it has no {error}" if isinstance(error, KeyError) else str(error)
        raise InputError(
            f"{path} does not say how it was learned ({what}); Learned.load reads its network."
        ) from None
    report.say(lines)
    if curve is not None:
        from bisimetric import views

        views.save(views.training_curve(found.history, title=title), curve)
    report.say(report.saved_lines([curve]))
