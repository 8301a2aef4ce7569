"""The page of a table, and the small one for notebooks."""

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
from bisimetric.explorer import data as tables
from bisimetric.explorer import layout
from bisimetric.explorer.bundle import assemble_page
from bisimetric.explorer.data import PageDistance, aggregate_at_thresholds
from bisimetric.uses.certificates import validate_distance_matrix
from bisimetric.views._figure import build_colormap

CALLER = "explorer.page"
MAX_STATES = 2_000
MAX_ENTRIES = 8_000_000
"""Entries of all tables of a page, both halves counted: they make 16 of its 20 MB."""
MAX_NOTEBOOK_STATES = 250
"""How many states a notebook shows."""
SHARED_SCRIPTS = (
    "numbers.js",
    "elements.js",
    "tips.js",
    "scales.js",
    "places.js",
    "painting.js",
    "overlays.js",
    "map.js",
    "couplings.js",
    "reasons.js",
    "selection.js",
    "opening.js",
    "steps.js",
    "sentences.js",
    "why.js",
    "distances.js",
)
PAGE_SCRIPTS = (
    "sums.js",
    "theme.js",
    "pairs.js",
    "compare.js",
    "values.js",
    "groups.js",
    "main.js",
)
NOTEBOOK_SCRIPTS = ("small.js",)


class Page(NamedTuple):
    """A page, and what is to be said of it.

    Attributes:
        text: the HTML.
        shown: how many states it shows, of `total`.
        notes: what a reader must know, in sentences.
    """

    html: str
    num_shown: int
    num_states: int
    notes: tuple[str, ...]


def render_page(d: Any, *, comparisons: Mapping[str, Any] | None = None, title: str = "") -> str:
    """The whole page of a distance, as HTML.

    Args:
        d: a `Distance`, a `Learned` that knows its states, or a plain table (n, n), which has no
            world to be explained by.
        against: by name, distances of the same states, to compare with.
        title: of the page; default: the world that the table was made of.

    >>> from bisimetric import exact, worlds
    >>> mdp = worlds.load("pessimism")
    >>> text = page(exact.bisimulation(mdp), against={"lax": exact.lax(mdp)})
    >>> "lax bisimulation distance" in text
    True
    """
    return build_page({"": d, **(comparisons or {})}, title=title).html


def build_page(distances: Mapping[str, Any], *, title: str = "") -> Page:
    """The page of one or more tables by name, the first one first, and what to say of it."""
    sheets, notes = _build_sheets(distances, MAX_STATES)
    with show_progress(len(sheets), "aggregations") as progress:
        found = [aggregate_at_thresholds(sheet, progress, at) for at, sheet in enumerate(sheets)]
    data = _build_data(sheets, notes, title)
    for each, classes in zip(data["tables"], found, strict=True):
        each["groups"] = classes
    text = assemble_page(f"{data['title']} · bisimetric", (*SHARED_SCRIPTS, *PAGE_SCRIPTS), data)
    return Page(text, len(sheets[0].ids), len(sheets[0].values), tuple(notes))


def render_notebook(d: Any) -> str:
    """A part of the page that is small enough for the output of a notebook, in a frame.

    The map or the points, distances from a state, and why two states differ; no charts.

    >>> from bisimetric import exact, worlds
    >>> small(exact.bisimulation(worlds.load("pessimism"))).startswith("<iframe ")
    True
    """
    sheets, notes = _build_sheets({"": d}, MAX_NOTEBOOK_STATES)
    data = _build_data(sheets, notes, "")
    text = assemble_page(data["title"], (*SHARED_SCRIPTS, *NOTEBOOK_SCRIPTS), data, charts=False)
    inside = html.escape(text, quote=True)
    return (
        f'<iframe srcdoc="{inside}" sandbox="allow-scripts" title="{html.escape(data["title"])}" '
        'style="width: 100%; height: 33rem; border: 0" loading="lazy"></iframe>'
    )


def _build_sheets(
    distances: Mapping[str, Any], max_states: int
) -> tuple[list[PageDistance], list[str]]:
    """The tables of the states that are shown, and what is to be said of them."""
    room = min(max_states, math.isqrt(MAX_ENTRIES // len(distances)))
    sheets: list[PageDistance] = []
    notes: list[str] = []
    for label, d in distances.items():
        if hasattr(d, "distance"):
            d = d.distance()
        values = validate_distance_matrix(f"{CALLER}: {label}" if label else CALLER, d)
        world = d if isinstance(d, Distance) else None
        named = label or (tables.SYMBOLS[world.kind] if world is not None else "the table")
        if not sheets:
            ids = layout.sample_states(None if world is None else world.mdp, len(values), room)
            if len(ids) < len(values):
                how = "in patches; where a path leaves them it is not followed"
                if world is None:
                    how = "at equal steps"
                notes.append(f"The page shows {len(ids):,} of {len(values):,} states, {how}.")
        else:
            ids = tables.match_states(sheets[0], d, values, named)
            if named in [sheet.label for sheet in sheets]:
                raise InputError(f"{CALLER}: two tables are called {named}; give each a name.")
        sheets.append(PageDistance(named, world, values, ids))
        if len(sheets) > 1:
            notes += tables.describe_differences(sheets[0], sheets[-1])
    return sheets, notes


def _build_data(sheets: list[PageDistance], notes: list[str], title: str) -> dict[str, Any]:
    first = sheets[0]
    mdp = None if first.d is None else first.d.mdp
    names = map(str if mdp is None else mdp.state_name, first.ids.tolist())
    world = "A table" if first.d is None else str(first.d.metadata.get("world", "A world"))
    found = [tables.build_distance_data(sheet, len(sheets)) for sheet in sheets]
    return {
        "title": title or world,
        "made": f"bisimetric {__version__}",
        "names": [name if name.strip() else "(blank)" for name in names],
        "total": len(first.values),
        "discount": None if mdp is None else mdp.discount,
        "actions": None if mdp is None else mdp.num_actions,
        "deterministic": None if mdp is None else mdp.is_deterministic,
        "notes": notes,
        "colours": list_colours(),
        "tables": found,
        **layout.build_layout(mdp, first.select_values(), first.ids, first.known),
    }


def list_colours(num_colours: int = 64) -> list[str]:
    """The colours of all pictures, near to far, as a page writes them.

    >>> shades()[0], shades()[-1]
    ('#440154', '#fde725')
    """
    levels = np.asarray(build_colormap()(np.linspace(0, 1, num_colours)))[:, :3]
    return ["#" + bytes(level.tolist()).hex() for level in np.rint(255 * levels).astype(np.uint8)]
