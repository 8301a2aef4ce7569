"""Colours: contrast of numbers and lines, forced colours, print."""

from __future__ import annotations

import io
from collections.abc import Callable

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Page

from bisimetric import Distance, explorer
from tests.browser.states import click

Open = Callable[..., Page]


def count_colours(page: Page, selector: str) -> int:
    """The number of different colours in a part of the page."""
    picture = Image.open(io.BytesIO(page.locator(selector).first.screenshot())).convert("RGB")
    return len(np.unique(np.asarray(picture).reshape(-1, 3), axis=0))


def test_forced_colours_keep_the_ramp_and_the_walls(show: Open, rooms: Distance) -> None:
    page = show(explorer.render_page(rooms))
    wall = "getComputedStyle(document.querySelector('#view-distances .map')).backgroundColor"
    before = page.evaluate(wall)
    assert count_colours(page, ".ramp") > 60
    page.emulate_media(forced_colors="active")
    assert count_colours(page, ".ramp") > 60
    assert page.evaluate(wall) == before
    page.locator("#tab-classes").click()
    swatch = "getComputedStyle(document.querySelector('#view-classes .swatch i')).backgroundColor"
    assert page.evaluate(swatch) == "rgb(240, 242, 245)"


@pytest.mark.parametrize("dark", [False, True])
def test_print_keeps_colours_on_white_paper(show: Open, rooms: Distance, dark: bool) -> None:
    page = show(explorer.render_page(rooms), dark=dark)
    click(page, 4)
    click(page, 20)
    page.emulate_media(media="print")
    for part in (".map", ".ramp", ".swatch i"):
        adjust = f"getComputedStyle(document.querySelector('{part}')).printColorAdjust"
        assert page.evaluate(adjust) == "exact", part
    ink = "getComputedStyle(document.body).color.match(/\\d+/g).map(Number)[0]"
    assert page.evaluate(ink) < 100
    # What paper cannot do is not printed, and what scrolls is printed whole.
    assert not page.locator("nav").is_visible()
    assert not page.locator(".play").is_visible()
    over = "(table) => table.scrollHeight - table.clientHeight"
    assert page.locator(".scroll").evaluate(over) <= 0
