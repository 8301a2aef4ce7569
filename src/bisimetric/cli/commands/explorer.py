"""`bisimetric explore`: one page on which states can be picked, compared and merged."""

from __future__ import annotations

import webbrowser
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import arg

from bisimetric.cli.arguments import DistanceArg, OutputArg, reject_overwriting, validate_outputs
from bisimetric.cli.commands.uses.files import reject_networks
from bisimetric.errors import InputError

if TYPE_CHECKING:
    from bisimetric.explorer import Page

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
    from bisimetric.archives import read_npy

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
