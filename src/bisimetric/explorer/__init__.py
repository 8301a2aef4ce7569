"""One self-contained page on which a person sees which states behave alike, and why.

`page` is the whole of it for one table or several of one world, `small` the version that a
`Distance` shows in a notebook, `episode` the page of the frames of a game. All return HTML as a
text that needs no server and no network; `save` writes it.

>>> from bisimetric import exact, explorer, worlds
>>> d = exact.bisimulation(worlds.load("pessimism"))
>>> explorer.page(d).startswith("<!doctype html>")
True
"""

from __future__ import annotations

from bisimetric.explorer.bundle import save_page
from bisimetric.explorer.episodes import render_episode
from bisimetric.explorer.pages import Page, build_page, render_notebook, render_page

__all__ = ["Page", "build_page", "render_episode", "render_notebook", "render_page", "save_page"]
