"""A self-contained HTML page that shows which states behave alike, and why.

`render_page` renders one distance matrix or several of the same MDP, `render_notebook` the version
that a `Distance` shows in a notebook, `render_episode` the frames of a game, `render_playground` a
page on which a grid is painted. All return HTML that needs no server and no network; `save_page`
writes it. `build_page` also returns the notes.

>>> from bisimetric import exact, explorer, worlds
>>> d = exact.bisimulation(worlds.load("pessimism"))
>>> explorer.render_page(d).startswith("<!doctype html>")
True
"""

from __future__ import annotations

from bisimetric.explorer.bundle import save_page
from bisimetric.explorer.episodes import render_episode
from bisimetric.explorer.pages import Page, build_page, render_notebook, render_page
from bisimetric.explorer.playground import render_playground

__all__ = [
    "Page",
    "build_page",
    "render_episode",
    "render_notebook",
    "render_page",
    "render_playground",
    "save_page",
]
