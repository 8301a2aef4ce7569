"""Colours: contrast of numbers and lines, forced colours, print."""

from __future__ import annotations

import dataclasses
import io
import math
import re
from collections.abc import Callable

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Page

from bisimetric import Distance, exact, explorer, worlds
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


def compute_luminance(colour: str) -> float:
    """The relative luminance of WCAG 2 of `#rrggbb`, `#rgb` or `rgb(r, g, b)`."""
    if colour.startswith("#"):
        digits = colour[1:] if len(colour) == 7 else "".join(2 * digit for digit in colour[1:])
        parts = [int(digits[i : i + 2], 16) for i in (0, 2, 4)]
    else:
        parts = [int(part) for part in re.findall(r"\d+", colour)[:3]]
    scaled = np.array(parts) / 255
    linear = np.where(scaled <= 0.04045, scaled / 12.92, ((scaled + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def compute_contrast(first: str, second: str) -> float:
    low, high = sorted([compute_luminance(first), compute_luminance(second)])
    return (high + 0.05) / (low + 0.05)


NUMBERS = """(view) => [...document.querySelectorAll(`#view-${view} .numbers text`)]
  .map((text) => [text.getAttribute("fill"), text.getAttribute("stroke")])"""


def test_numbers_have_contrast_on_every_shade(show: Open) -> None:
    # One state per shade of the scale, and distance 0.
    row = np.r_[0.0, np.linspace(1, 2, 64)]
    values = np.abs(np.subtract.outer(row, row))
    mdp = worlds.load("open-grid", rows=5, columns=13, obstacles=0, discount=0.9)
    d = Distance(values, math.inf, "bisimulation", mdp)
    page = show(explorer.build_page({"d": d, "e": dataclasses.replace(d, values=values**2)}).html)
    for view in ("distances", "compare", "classes"):
        page.locator(f"#tab-{view}").click()
        found = page.evaluate(NUMBERS, view)
        assert len(found) >= 65
        assert len({shade for _, shade in found}) >= 9
        assert min(compute_contrast(*pair) for pair in found) >= 4.5, view


PLACE = """(state) => {
  const { map } = bisimetric.views.get("distances");
  return [...map.centre(state), 1 / map.toUnits(1)];
}"""


def test_a_halo_keeps_lines_out_of_numbers(show: Open) -> None:
    d = exact.bisimulation(worlds.load("MiniGrid-Empty-5x5-v0", discount=0.9))
    page = show(explorer.render_page(d))
    # Paths of this pair cross the numbers of these states from above to below.
    page.evaluate("bisimetric.selection.selectPair(0, 9)")
    for name in ("1,3 east", "1,3 south", "2,3 east", "2,3 south"):
        x, y, cell = page.evaluate(PLACE, d.mdp.state(name))
        shot = page.screenshot(
            clip={"x": x - 0.35 * cell, "y": y - 5, "width": 0.7 * cell, "height": 10}
        )
        picture = Image.open(io.BytesIO(shot)).convert("RGB")
        pixels = np.asarray(picture, np.int64).reshape(-1, 3)
        for line in ((228, 0, 124), (208, 106, 0)):
            assert np.abs(pixels - line).sum(axis=1).min() > 60, name


@pytest.mark.parametrize("dark", [False, True])
def test_lines_and_borders_have_contrast(show: Open, comparison_page: str, dark: bool) -> None:
    page = show(comparison_page, dark=dark)
    page.evaluate("bisimetric.selection.selectPair(4, 20)")
    card = page.evaluate("getComputedStyle(document.querySelector('.card')).backgroundColor")
    border = "(node) => getComputedStyle(node).borderTopColor"
    controls = (".stepper button", ".theme", "#distance-select", "summary", "#find-state", "#norm")
    for part in (*controls, ".ramp", ".chip.first", ".command code"):
        colour = page.locator(part).first.evaluate(border)
        assert compute_contrast(colour, card) >= 3, part
    page.locator("#tab-classes").click()
    strokes = page.locator("#view-classes [data-part=line] path").all()
    assert len(strokes) == 2
    for line in strokes:
        assert compute_contrast(line.get_attribute("stroke") or "", card) >= 3


REPEATED = """() => {
  const view = bisimetric.views.get("classes");
  const labels = view.classes(Number(view.range.value));
  const colours = view.lastPaint[0];
  const pairs = view.map.layout.listAdjacentPairs();
  const isColoured = (s) => colours[s] !== "#f0f2f5";
  const repeats = ([s, t]) => labels[s] !== labels[t] && colours[s] === colours[t] && isColoured(s);
  return [pairs.length, new Set(colours).size, pairs.filter(repeats).length];
}"""


@pytest.mark.parametrize("name", ["open-grid", "random"])
def test_neighbours_never_have_the_same_colour(show: Open, name: str) -> None:
    size = {"rows": 12, "columns": 12} if name == "open-grid" else {"states": 150}
    mdp = worlds.load(name, discount=0.9, **size)
    positions = np.random.default_rng(0).normal(size=(mdp.num_states, 3))
    values = np.linalg.norm(positions[:, None] - positions[None], axis=-1)
    page = show(explorer.render_page(Distance(values, math.inf, "bisimulation", mdp)))
    page.locator("#tab-classes").click()
    most = 0
    for step in range(0, int(page.locator("#threshold").get_attribute("max") or 0), 4):
        page.locator("#threshold").fill(str(step))
        num_pairs, num_colours, num_repeated = page.evaluate(REPEATED)
        assert num_pairs > 100
        assert num_repeated == 0, step
        most = max(most, num_colours)
    assert most > 12
