"""The page of distance matrices, and the small one for notebooks."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from bisimetric import __version__
from bisimetric._progress import show_progress
from bisimetric.distance import Distance
from bisimetric.errors import InputError
from bisimetric.explorer.bundle import assemble_page
from bisimetric.explorer.data import (
    SYMBOLS,
    PageDistance,
    aggregate_at_thresholds,
    build_distance_data,
    describe_differences,
    match_states,
)
from bisimetric.explorer.layout import build_layout, sample_states
from bisimetric.uses.certificates import validate_distance_matrix
from bisimetric.views._figure import build_colormap

CALLER = "explorer.render_page"
MAX_STATES = 2_000
MAX_ENTRIES = 8_000_000
"""Entries of all matrices of a page, both halves counted: 16 of its 20 MB."""
MAX_NOTEBOOK_STATES = 250
"""The largest number of states in a notebook."""


class Page(NamedTuple):
    """A page and facts about it.

    Attributes:
        html: the page.
        num_shown: the number of states that it shows.
        num_states: the number of states of the MDP.
        notes: remarks for the reader, in sentences.

    >>> build_page({"plain": [[0.0, 1.0], [1.0, 0.0]]}).notes
    ()
    """

    html: str
    num_shown: int
    num_states: int
    notes: tuple[str, ...]


def render_page(d: Any, *, comparisons: Mapping[str, Any] | None = None, title: str = "") -> str:
    """Render the page of a distance as HTML.

    Args:
        d: a `Distance`, a `LearnedDistance` that knows its states, or a plain matrix (n, n), which
            has no MDP to explain it.
        comparisons: by name, distances between the same states, to compare with.
        title: of the page; default: the name of the MDP.

    Returns:
        The HTML.

    Raises:
        InputError: a matrix is invalid, or the comparisons are between other states.

    >>> from bisimetric import exact, worlds
    >>> mdp = worlds.load("pessimism")
    >>> page = render_page(exact.bisimulation(mdp), comparisons={"lax": exact.lax(mdp)})
    >>> "lax bisimulation distance" in page
    True
    """
    return build_page({"": d, **(comparisons or {})}, title=title).html


def build_page(
    distances: Mapping[str, Any], *, title: str = "", files: Mapping[str, str] | None = None
) -> Page:
    """Build the page of one or more distances and the notes about it.

    Args:
        distances: by name, as `render_page` takes them; the first one is shown first.
        title: of the page; default: the name of the MDP.
        files: by name of a distance, the file that it was saved to, for the command that explains
            a pair.

    Returns:
        The page, its number of states and its notes.

    Raises:
        InputError: a matrix is invalid, or the distances are between different states.

    >>> from bisimetric import exact, worlds
    >>> build_page({"exact": exact.bisimulation(worlds.load("pessimism"))}).num_shown
    3
    """
    sheets, notes = _build_sheets(distances, MAX_STATES, files or {})
    with show_progress(len(sheets), "aggregations") as progress:
        classes_by_distance = [
            aggregate_at_thresholds(sheet, progress, index) for index, sheet in enumerate(sheets)
        ]
    data = _build_data(sheets, notes, title)
    for each, classes in zip(data["distances"], classes_by_distance, strict=True):
        each["aggregation"] = classes
    page = assemble_page(f"{data['title']} · bisimetric", "page", data)
    return Page(page, len(sheets[0].ids), len(sheets[0].values), tuple(notes))


def render_notebook(d: Any) -> str:
    """Render a small page for the output of a notebook, in an iframe.

    It has the map or the points, the distances from a state, and the explanation of a pair; no
    charts.

    Args:
        d: as `render_page` takes it.

    Returns:
        An HTML iframe.

    Raises:
        InputError: the matrix is invalid.

    >>> from bisimetric import exact, worlds
    >>> render_notebook(exact.bisimulation(worlds.load("pessimism"))).startswith("<iframe ")
    True
    """
    sheets, notes = _build_sheets({"": d}, MAX_NOTEBOOK_STATES, {})
    data = _build_data(sheets, notes, "")
    text = assemble_page(data["title"], "notebook", data, charts=False)
    inside = html.escape(text, quote=True)
    return (
        f'<iframe srcdoc="{inside}" sandbox="allow-scripts" title="{html.escape(data["title"])}" '
        'style="width: 100%; height: 33rem; border: 0" loading="lazy"></iframe>'
    )


def _build_sheets(
    distances: Mapping[str, Any], max_states: int, files: Mapping[str, str]
) -> tuple[list[PageDistance], list[str]]:
    """Build the distances of the states that are shown, and the notes about them."""
    limit = min(max_states, math.isqrt(MAX_ENTRIES // len(distances)))
    sheets: list[PageDistance] = []
    notes: list[str] = []
    for label, d in distances.items():
        if hasattr(d, "distance"):
            d = d.distance()
        values = validate_distance_matrix(f"{CALLER}: {label}" if label else CALLER, d)
        distance = d if isinstance(d, Distance) else None
        name = label or (SYMBOLS[distance.kind] if distance is not None else "the matrix")
        if not sheets:
            ids = sample_states(None if distance is None else distance.mdp, len(values), limit)
            if len(ids) < len(values):
                selection = "in patches; paths are not followed outside of them"
                if distance is None:
                    selection = "at equal steps"
                notes.append(f"The page shows {len(ids):,} of {len(values):,} states, {selection}.")
        else:
            ids = match_states(sheets[0], d, values, name)
            if name in [sheet.label for sheet in sheets]:
                raise InputError(f"{CALLER}: two matrices are called {name}; give each a name.")
        sheets.append(PageDistance(name, distance, values, ids, files.get(label)))
        if len(sheets) > 1:
            notes += describe_differences(sheets[0], sheets[-1])
    return sheets, notes


def _build_data(sheets: list[PageDistance], notes: list[str], title: str) -> dict[str, Any]:
    first = sheets[0]
    mdp = None if first.d is None else first.d.mdp
    names = map(str if mdp is None else mdp.state_name, first.ids.tolist())
    default_title = (
        "Distance matrix" if first.d is None else str(first.d.metadata.get("world", "MDP"))
    )
    distances = [build_distance_data(sheet, len(sheets)) for sheet in sheets]
    return {
        "title": title or default_title,
        "generator": f"bisimetric {__version__}",
        "names": [name if name.strip() else "(blank)" for name in names],
        "ids": first.ids.tolist() if len(first.ids) < len(first.values) else None,
        "numStates": len(first.values),
        "discount": None if mdp is None else mdp.discount,
        "numActions": None if mdp is None else mdp.num_actions,
        "deterministic": None if mdp is None else mdp.is_deterministic,
        "notes": notes,
        "colours": list_colours(),
        "distances": distances,
        **build_layout(mdp, first.select_values(), first.ids, first.known),
    }


def list_colours(num_colours: int = 64) -> list[str]:
    """List the colours of the colour map, near to far, in hexadecimal.

    >>> list_colours()[0], list_colours()[-1]
    ('#440154', '#fde725')
    """
    levels = np.asarray(build_colormap()(np.linspace(0, 1, num_colours)))[:, :3]
    return ["#" + bytes(level.tolist()).hex() for level in np.rint(255 * levels).astype(np.uint8)]
