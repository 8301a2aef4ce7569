"""`bisimetric worlds`: what the other commands can work on.

`bisimetric explain` and `bisimetric show`: what is in a saved table, and why.

`bisimetric explore`: one page on which states can be picked, compared and merged.
"""

from __future__ import annotations

import webbrowser
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import arg

from bisimetric.cli.learned_options import read_label
from bisimetric.cli.options import (
    DistanceArg,
    FigureArg,
    FigureOptions,
    OutputArg,
    StateArg,
    reject_overwriting,
    validate_outputs,
)
from bisimetric.cli.output import reject_networks
from bisimetric.errors import InputError

if TYPE_CHECKING:
    from bisimetric.explorer import Page


def worlds() -> None:
    """List the built-in worlds and their options, and the characters of a text grid.

    Examples:
        bisimetric worlds
    """
    from bisimetric.cli.report import describe_worlds

    print(*describe_worlds(), sep="\n")


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
    from bisimetric.cli import learned_report, report

    found = learned_report.read_learned_file(path, label)
    try:
        lines, title = list(learned_report.describe_file(found)), found.title
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


OtherDistancesArg = Annotated[tuple[Path, ...], arg(metavar="TABLE ...", help_behavior_hint="")]


def view(
    distance_path: DistanceArg, against: OtherDistancesArg = (), output: OutputArg = None
) -> None:
    """A page of a table: pick states, see why they differ, compare tables, merge states.

    The page is one file that needs no server and no network. Without -o it is put where temporary
    files are, and opened in the browser.

    Args:
        table: a table saved with -o; or a .npy file of plain distances
        against: other tables of the same world, to compare with
        output: save the page as an .html file in place of opening it

    Examples:
        bisimetric explore d.npz
        bisimetric explore d.npz -o page.html
        bisimetric explore exact.npz --against sampled.npz learned.npz -o page.html
    """
    validate_outputs(output)
    reject_overwriting([output], distance_path, *against)
    if output is not None and output.suffix != ".html":
        raise InputError(f"cannot save a page as {output}; the name must end in .html.")
    paths = [distance_path, *against]
    reject_networks(*paths)
    from bisimetric import explorer
    from bisimetric.cli import report

    read = dict(zip(_label_paths(paths), map(_read_distance, paths), strict=True))
    world = getattr(next(iter(read.values())), "made", {}).get("world")
    page = explorer.build_page(read, title=str(world or distance_path.stem))
    path = output if output is not None else _create_temporary_path(distance_path)
    explorer.save_page(page.html, path)
    report.print_lines(_describe_page(page), report.describe_saved([path]))
    if output is None and not webbrowser.open(path.resolve().as_uri()):
        print("next: open that file in a browser; none was found here")


def _label_paths(paths: Sequence[Path]) -> list[str]:
    """What to call the tables: the names of their files, or with their folders."""
    stems = [path.stem for path in paths]
    labels = stems if len(set(stems)) == len(stems) else [str(path) for path in paths]
    if len(set(labels)) < len(labels):
        twice = next(label for label in labels if labels.count(label) > 1)
        raise InputError(f"{twice} is given twice; compare a table with another one.")
    return labels


def _read_distance(path: Path) -> Any:
    """A distance, or a plain table."""
    if path.suffix != ".npy":
        from bisimetric.distance import Distance

        return Distance.load(path)
    from bisimetric._io import read_npy

    try:
        return read_npy(path)
    except (ValueError, EOFError) as error:
        raise InputError(f"{path} is no .npy file of numbers ({error}).") from None


def _create_temporary_path(table: Path) -> Path:
    """Where a page goes that is only opened."""
    import tempfile

    return Path(tempfile.mkdtemp(prefix="bisimetric-")) / f"{table.stem}.html"


def _describe_page(page: Page) -> Iterator[str]:
    from bisimetric.cli import report

    some = f"{page.num_shown:,} of " if page.num_shown < page.num_states else ""
    yield f"states     {some}{report.format_count(page.num_states, 'state')}"
    for note in page.notes:
        yield f"note       {note}"
    yield f"size       {len(page.html.encode()) / 1e6:.1f} MB"
