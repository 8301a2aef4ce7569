"""`bisimetric explore`: one page on which states can be picked, compared and merged."""

from __future__ import annotations

import webbrowser
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import arg

from bisimetric.cli.arguments import Output, Table, check_outputs, keep_inputs
from bisimetric.cli.commands.uses.files import refuse_networks
from bisimetric.errors import InputError

if TYPE_CHECKING:
    from bisimetric.explorer import Page

Others = Annotated[tuple[Path, ...], arg(metavar="TABLE ...", help_behavior_hint="")]


def explore(table: Table, against: Others = (), output: Output = None) -> None:
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
    check_outputs(output)
    keep_inputs([output], table, *against)
    if output is not None and output.suffix != ".html":
        raise InputError(f"cannot save a page as {output}; the name must end in .html.")
    paths = [table, *against]
    refuse_networks(*paths)
    from bisimetric import explorer
    from bisimetric.cli import report

    read = dict(zip(_labels(paths), map(_read, paths), strict=True))
    world = getattr(next(iter(read.values())), "made", {}).get("world")
    page = explorer.made(read, title=str(world or table.stem))
    path = output if output is not None else _beside(table)
    explorer.save(page.text, path)
    report.say(_lines(page), report.saved_lines([path]))
    if output is None and not webbrowser.open(path.resolve().as_uri()):
        print("next: open that file in a browser; none was found here")


def _labels(paths: Sequence[Path]) -> list[str]:
    """What to call the tables: the names of their files, or with their folders."""
    stems = [path.stem for path in paths]
    labels = stems if len(set(stems)) == len(stems) else [str(path) for path in paths]
    if len(set(labels)) < len(labels):
        twice = next(label for label in labels if labels.count(label) > 1)
        raise InputError(f"{twice} is given twice; compare a table with another one.")
    return labels


def _read(path: Path) -> Any:
    """A distance, or a plain table."""
    if path.suffix != ".npy":
        from bisimetric.distance import Distance

        return Distance.load(path)
    from bisimetric.archives import read_npy

    try:
        return read_npy(path)
    except (ValueError, EOFError) as error:
        raise InputError(f"{path} is no .npy file of numbers ({error}).") from None


def _beside(table: Path) -> Path:
    """Where a page goes that is only opened."""
    import tempfile

    return Path(tempfile.mkdtemp(prefix="bisimetric-")) / f"{table.stem}.html"


def _lines(page: Page) -> Iterator[str]:
    from bisimetric.cli import report

    some = f"{page.shown:,} of " if page.shown < page.total else ""
    yield f"states     {some}{report.plural(page.total, 'state')}"
    for note in page.notes:
        yield f"note       {note}"
    yield f"size       {len(page.text.encode()) / 1e6:.1f} MB"
