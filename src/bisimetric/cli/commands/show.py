"""Inspect worlds and distances: `bisimetric worlds`, `explain`, `show`, `view`, `playground`."""

from __future__ import annotations

import webbrowser
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import arg

from bisimetric._text import pluralise
from bisimetric.cli.options import (
    DistanceArg,
    FigureArg,
    FigureOptions,
    OutputArg,
    StateArg,
    validate_files,
)
from bisimetric.cli.output import read_label, reject_networks
from bisimetric.errors import InputError

if TYPE_CHECKING:
    from bisimetric.cli.report import Fact
    from bisimetric.distance.explanation import Explanation
    from bisimetric.explorer import Page


def worlds() -> None:
    """List the built-in worlds and their options, and the characters of a text grid.

    Examples:
        bisimetric worlds
    """
    from bisimetric.cli.report import describe_worlds, emit

    emit(describe_worlds())


def explain(path: DistanceArg, first: StateArg, second: StateArg) -> None:
    """Explain the distance of two states: the steps whose reward gaps add up to it.

    `relation distinguish` gives a formula that only one of them satisfies.

    Args:
        path: distances saved with -o: a file, or the folder of a sharded matrix
        first: a state, by name or id
        second: another state

    Examples:
        bisimetric explain d.npz 1,5 5,5
        bisimetric explain d.npz 0 30 --json
    """
    reject_networks(path)
    from bisimetric.cli import report
    from bisimetric.distance import Distance

    explanation = Distance.load(path).explain(first, second)
    report.emit([str(explanation)])
    report.emit_values(**_to_values(explanation))


def _to_values(explanation: Explanation) -> dict[str, Any]:
    """Return the numbers of an explanation."""
    mdp = explanation.mdp

    def name_pair(states: Sequence[int]) -> list[str]:
        return [mdp.state_name(state) for state in states]

    steps = [
        {
            "states": name_pair(step.states),
            "actions": step.actions and [mdp.action_name(action) for action in step.actions],
            "reward_gap": step.reward_gap,
            "contribution": step.contribution,
            "next_states": name_pair(step.next_states),
        }
        for step in explanation.steps
    ]
    return {
        "kind": explanation.kind,
        "states": name_pair(explanation.states),
        "distance": explanation.distance,
        "error": explanation.proof.error,
        "value_gap": explanation.value_gap,
        "total": explanation.total,
        "steps": steps,
    }


def show(
    path: DistanceArg,
    figures: FigureOptions,
    nearest: Annotated[int, arg(metavar="K")] = 5,
    plot_training: FigureArg = None,
) -> None:
    """Show saved distances: their metadata, a map, the nearest states, and figures.

    Args:
        path: distances saved with -o, a file or a folder; or a network saved by `learned`
        nearest: the number of nearest states to list
        plot_training: for a network, save a figure of its loss over the updates

    Examples:
        bisimetric show d.npz --from 4,3 --nearest 10
        bisimetric show d.npz --from 4,3 --plot-map map.png --plot-heatmap heatmap.png
        bisimetric show d.npz --plot-all-maps maps.pdf
        bisimetric show d.npz --normalise --norm log --plot-heatmap heatmap.png
        bisimetric show d.safetensors --plot-training curve.png
    """
    validate_files(None, [*figures.paths, plot_training], inputs=[path])
    label = read_label(path)
    if label is not None:
        _show_network(path, label, figures, plot_training)
        return
    if plot_training is not None:
        raise InputError(
            f"--plot-training is for a network saved by `learned`, and {path} is none."
        )
    from bisimetric import views
    from bisimetric.cli import report
    from bisimetric.distance import Distance

    distance = Distance.load(path)
    figures.validate_states(distance.mdp)
    origin = distance.mdp.state(figures.origin)
    learned = distance.metadata.get("method") == "learned"
    note = [report.Fact("learned", "by a network: an approximation, nothing is proven", True)]
    report.emit(
        report.describe_distance(distance),
        note if learned else [],
        report.describe_metadata(distance),
        [""],
        report.describe_nearest(distance, origin, nearest),
        [""],
        [views.format_terminal_map(distance, origin, normalise=figures.normalise)],
    )
    figures.draw(distance)
    report.emit(report.describe_saved(figures.paths))


def _show_network(
    path: Path, label: dict[str, Any], figures: FigureOptions, plot_training: Path | None
) -> None:
    """Show a file written by `learned`, and its training as a figure."""
    if figures.paths:
        raise InputError(
            f"cannot draw {figures.paths[0]}: {path} is a network, not a distance matrix; "
            "`bisimetric learned ... --matrix d.npz` saves the matrix of a world, and "
            "--plot-training draws its training."
        )
    from bisimetric.cli import learned_report, report

    file = learned_report.read_learned_file(path, label)
    try:
        lines, title = list(learned_report.describe_file(file)), file.title
    except (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError) as error:
        reason = f"it has no {error}" if isinstance(error, KeyError) else str(error)
        raise InputError(
            f"{path} lacks metadata of its training ({reason}); LearnedDistance.load reads its "
            "network."
        ) from None
    report.emit(lines)
    if plot_training is not None:
        from bisimetric import views

        views.save_figure(views.plot_training_curve(file.history, title=title), plot_training)
    report.emit(report.describe_saved([plot_training]))


def view(
    path: DistanceArg,
    against: Annotated[tuple[Path, ...], arg(metavar="DISTANCE ...", help_behavior_hint="")] = (),
    output: OutputArg = None,
) -> None:
    """Explore distances on an interactive page: pick, explain, compare and merge states.

    The page is one file that needs no server and no network. Without -o it is a temporary file,
    opened in the browser.

    Args:
        path: distances saved with -o; or a .npy file of a plain matrix
        against: other distances of the same world, to compare with
        output: save the page as an .html file in place of opening it

    Examples:
        bisimetric view d.npz
        bisimetric view d.npz -o page.html
        bisimetric view exact.npz --against sampled.npz learned.npz -o page.html
    """
    paths = [path, *against]
    validate_files(output, content="a page", suffix=".html", inputs=paths)
    reject_networks(*paths)
    from bisimetric import explorer
    from bisimetric.cli import report

    labels = _label_paths(paths)
    distances = dict(zip(labels, map(_read_distance, paths), strict=True))
    world = getattr(next(iter(distances.values())), "metadata", {}).get("world")
    page = explorer.build_page(
        distances,
        title=str(world or path.stem),
        files=dict(zip(labels, map(str, paths), strict=True)),
    )
    target = output if output is not None else _create_temporary_path(path)
    explorer.save_page(page.html, target)
    report.emit(_describe_page(page), report.describe_saved([target]))
    if output is None:
        _open_page(target)


def playground(
    grid: Annotated[Path | None, arg(metavar="FILE", help_behavior_hint="")] = None,
    output: OutputArg = None,
    no_open: bool = False,
) -> None:
    """Paint a grid on an interactive page, which computes its distances as you paint.

    The page is one file that needs no server and no network. Without -o it is a temporary file,
    opened in the browser. It has d~, d^pi and d_lax of up to 600 states, their explanations and
    classes; the numbers are not proven, and the page shows the command that proves them.

    Args:
        grid: a grid file to start from (default: two rooms)
        output: save the page as an .html file in place of opening it
        no_open: do not open the page in a browser

    Examples:
        bisimetric playground
        bisimetric playground --grid two-rooms.txt
        bisimetric playground -o playground.html
    """
    validate_files(output, content="a page", suffix=".html", inputs=[grid])
    from bisimetric import explorer
    from bisimetric.cli import report
    from bisimetric.worlds import grids

    text = None
    if grid is not None:
        grids.read_grid(grid)  # an error in it names the file
        text = grids.read_grid_text(grid)
    page = explorer.render_playground(text)
    target = output if output is not None else _create_temporary_path(Path("playground"))
    explorer.save_page(page, target)
    report.emit([_describe_size(page)], report.describe_saved([target]))
    if output is None and not no_open:
        _open_page(target)


def _open_page(path: Path) -> None:
    """Open a page in the browser, or say that there is none."""
    from bisimetric.cli import report

    if not webbrowser.open(path.resolve().as_uri()):
        report.emit([report.Fact("next", "open that file in a browser; none was found here")])


def _label_paths(paths: Sequence[Path]) -> list[str]:
    """Return distinct labels: the stems of the paths, or the whole paths."""
    stems = [path.stem for path in paths]
    labels = stems if len(set(stems)) == len(stems) else [str(path) for path in paths]
    if len(set(labels)) < len(labels):
        twice = next(label for label in labels if labels.count(label) > 1)
        raise InputError(f"{twice} is given twice; compare distances with other ones.")
    return labels


def _read_distance(path: Path) -> Any:
    """Read a distance, or a plain matrix."""
    if path.suffix != ".npy":
        from bisimetric.distance import Distance

        return Distance.load(path)
    from bisimetric._io import read_npy

    try:
        return read_npy(path)
    except (ValueError, EOFError) as error:
        raise InputError(f"{path} is no .npy file of numbers ({error}).") from None


def _create_temporary_path(path: Path) -> Path:
    """Return where to write a page that is only opened."""
    import tempfile

    return Path(tempfile.mkdtemp(prefix="bisimetric-")) / f"{path.stem}.html"


def _describe_page(page: Page) -> Iterator[Fact]:
    from bisimetric.cli.report import Fact

    shown = f"{page.num_shown:,} of " if page.num_shown < page.num_states else ""
    value = {"total": page.num_states, "shown": page.num_shown}
    yield Fact("states", f"{shown}{pluralise(page.num_states, 'state')}", value)
    yield from (Fact("note", note) for note in page.notes)
    yield _describe_size(page.html)


def _describe_size(html: str) -> Fact:
    from bisimetric.cli.report import Fact

    size = len(html.encode())
    return Fact("size", f"{size / 1e6:.1f} MB", {"bytes": size})
