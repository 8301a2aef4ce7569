"""`bisimetric explain` and `bisimetric show`: what is in a saved table, and why."""

from __future__ import annotations

from typing import Annotated

from tyro.conf import arg

from bisimetric.cli.arguments import Drawn, State, Table


def explain(table: Table, first: State, second: State) -> None:
    """Why two states are as far apart as they are: the steps that add up to their distance.

    Args:
        table: a table saved with -o
        first: a state, by name or id
        second: another one

    Examples:
        bisimetric explain d.npz 1,5 5,5
        bisimetric explain d.npz 0 30
    """
    from bisimetric.distance import Distance

    print(Distance.load(table).explain(first, second))


def show(table: Table, pictures: Drawn, nearest: Annotated[int, arg(metavar="K")] = 5) -> None:
    """What is in a saved table: how it was made, a map, the nearest states, and pictures.

    Args:
        table: a table saved with -o
        nearest: how many of the nearest states to list

    Examples:
        bisimetric show d.npz --from 4,3 --nearest 10
        bisimetric show d.npz --from 4,3 --plot map.png --heatmap table.png --all-maps all.png
    """
    pictures.check()
    from bisimetric import views
    from bisimetric.cli import report
    from bisimetric.distance import Distance

    distance = Distance.load(table)
    pictures.check_world(distance.mdp)
    origin = distance.mdp.state(pictures.origin)
    near = report.nearest_lines(distance, origin, nearest)
    drawn = [views.terminal_map(distance, origin)]
    report.say(report.table_lines(distance), report.made_lines(distance), [""], near, [""], drawn)
    pictures.draw(distance)
    report.say(report.saved_lines(pictures.paths))
