"""The playground: a page on which a grid is painted, and its distances are computed live."""

from __future__ import annotations

from bisimetric import __version__
from bisimetric.errors import InputError
from bisimetric.explorer.bundle import assemble_page
from bisimetric.explorer.pages import list_colours
from bisimetric.worlds import grid as build_grid

MAX_ROWS, MAX_COLUMNS = 30, 40
"""The largest grid that the page paints, as in `parts/playground_grid.js`."""


def render_playground(grid: str | None = None) -> str:
    """Render the page on which a person paints a grid and sees its distances change.

    The page computes d~, d^pi and d_lax itself, by policy iteration in JavaScript, for up to 600
    states. Its numbers are not proven; it shows the command of `bisimetric exact` that proves them.

    Args:
        grid: the text of a grid to start from, in the characters of `worlds.grid`; default: two
            rooms.

    Returns:
        The HTML.

    Raises:
        InputError: the text is no grid, or has more than 30 rows or 40 columns.

    >>> render_playground("* g*").startswith("<!doctype html>")
    True
    """
    if grid is not None:
        build_grid(grid)  # which validates it
        lines = grid.replace("\r\n", "\n").strip("\n").split("\n")
        grid = "\n".join(lines)
        if len(lines) > MAX_ROWS or len(lines[0]) > MAX_COLUMNS:
            raise InputError(
                f"explorer.render_playground: the grid has {len(lines)} rows and {len(lines[0])} "
                f"columns; the page paints up to {MAX_ROWS} rows and {MAX_COLUMNS} columns."
            )
    data = {
        "grid": grid,
        "colours": list_colours(),
        "generator": f"bisimetric {__version__}",
    }
    return assemble_page(
        "Playground · bisimetric", "playground", data, charts=False, worker="playground_worker"
    )
