"""Pages on wide and narrow screens, dark and light, of many states and of long names."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Callable

import numpy as np
import pytest
from playwright.sync_api import Page, expect

from bisimetric import MDP, Distance, exact, explorer, uses, worlds
from tests.browser.states import click

Open = Callable[..., Page]
PATIENCE = 3
"""How many times slower a busy machine may be than the pages are meant for."""
OVER = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("dark", [False, True])
def test_nothing_is_wider_than_the_window(
    show: Open, comparison_page: str, width: int, dark: bool
) -> None:
    page = show(comparison_page, width=width, dark=dark)
    click(page, 12)
    click(page, 25)
    for view in ("distances", "compare", "values", "classes"):
        page.locator(f"#tab-{view}").click()
        assert page.evaluate(OVER) <= 0, view
    light = "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)[0] > 128"
    assert page.evaluate(light) is not dark
    page.locator(".theme").click()
    assert page.evaluate(light) is dark


@pytest.mark.parametrize("width", [1280, 390])
def test_long_names_are_cut_and_shown_whole_on_hover(show: Open, width: int) -> None:
    names = tuple(f"{'a long name ' * 30}{s}" for s in range(8))
    ring = (np.arange(8) + 1) % 8
    mdp = MDP.deterministic(ring[:, None], np.arange(8.0)[:, None], discount=0.5, names=names)
    d = exact.bisimulation(mdp)
    page = show(explorer.build_page({"d": d, "lax": exact.lax(mdp)}).html, width=width)
    click(page, 0)
    click(page, 3)
    for view in ("distances", "compare", "values", "classes"):
        page.locator(f"#tab-{view}").click()
        assert page.evaluate(OVER) <= 0, view
    shown = page.locator("#view-distances .name").all()
    assert len(shown) > 8
    page.locator("#tab-distances").click()
    for each in shown:
        box = each.bounding_box()
        assert box is not None
        assert box["height"] < 90
        assert (each.get_attribute("title") or "").startswith(("a long name", "0"))


@pytest.mark.parametrize("label", ["a" * 150, "several words of a label " * 8])
def test_long_labels_fit_on_a_phone(show: Open, rooms: Distance, label: str) -> None:
    page = show(explorer.build_page({label: rooms, f"{label}2": rooms}).html, width=390)
    for view in ("distances", "compare", "values", "classes"):
        page.locator(f"#tab-{view}").click()
        assert page.evaluate(OVER) <= 0, view
        for box in page.locator("select:visible, table:visible, h2:visible, svg:visible").all():
            place = box.bounding_box()
            assert place is not None
            assert place["x"] >= 0
            assert place["x"] + place["width"] <= 390


def test_the_explanation_is_on_the_screen_of_a_phone(show: Open, rooms: Distance) -> None:
    page = show(explorer.render_page(rooms), width=390)
    page.set_viewport_size({"width": 390, "height": 664})
    click(page, 4)
    assert page.evaluate("window.scrollY") == 0
    click(page, 20)
    page.wait_for_timeout(1500)
    assert page.evaluate("window.scrollY") > 0
    for part in (page.locator("#distance"), page.locator(".stepper")):
        box = part.bounding_box()
        assert box is not None
        assert box["y"] + box["height"] <= 664
    # The map is still there.
    place = page.locator("#view-distances svg.states-map").bounding_box()
    assert place is not None
    assert place["y"] + place["height"] > 150


def test_terms_are_explained(show: Open, rooms: Distance) -> None:
    page = show(explorer.render_page(rooms))
    page.locator(".facts-line [data-term=discount]").focus()
    expect(page.locator("#tooltip")).to_contain_text("a reward k steps ahead")
    for view in ("distances", "values", "classes"):
        page.locator(f"#tab-{view}").click()
    for term in page.locator("[data-term]").all():
        term.dispatch_event("pointerover", {"bubbles": True})
        assert (page.locator("#tooltip").text_content() or "undefined") != "undefined"


# From a click until the frame after the one that shows it.
CLICKS = """async (view) => {
  const shown = bisimetric.views.get(view);
  const map = shown.map ?? shown.cards[0].map;
  const frame = () => new Promise((done) => requestAnimationFrame(done));
  const found = [];
  for (let k = 0; k < 14; k++) {
    const [clientX, clientY] = map.centre(137 * k + 9);
    await frame();
    const start = performance.now();
    map.svg.dispatchEvent(new MouseEvent("click", { bubbles: true, clientX, clientY }));
    await frame();
    await frame();
    found.push(performance.now() - start);
  }
  return found;
}"""


@pytest.fixture(scope="module")
def large() -> str:
    """Two tables of 2,000 states."""
    mdp = worlds.load("open-grid", rows=40, columns=50, obstacles=0, discount=0.9)
    d = Distance(uses.manhattan_distances(mdp), math.inf, "bisimulation", mdp)
    other = dataclasses.replace(d, values=np.sqrt(d.values))
    return explorer.build_page({"d": d, "other": other}).html


def test_2000_states_are_repainted_within_100_ms(show: Open, large: str) -> None:
    page = show(large)
    for view in ("distances", "compare"):
        page.locator(f"#tab-{view}").click()
        taken = page.evaluate(CLICKS, view)
        assert statistics.median(taken) < PATIENCE * 100, view
        # The last click, the fourteenth, chose a second state.
        selected = page.locator(f"#view-{view} .selected").first
        expect(selected.locator(".first")).to_have_count(1)
        expect(selected.locator(".second")).to_have_count(1)


def test_a_path_that_leaves_the_sample_stops_with_a_note(show: Open) -> None:
    count = 2_400
    after = (np.arange(count) + 1) % count
    rewards = np.sin(np.arange(count))
    mdp = MDP.deterministic(after[:, None], rewards[:, None], discount=0.9)
    d = exact.on_policy(mdp, np.zeros(count, np.int64))
    page = show(explorer.render_page(d))
    expect(page.locator(".note")).to_contain_text("2,000 of 2,400 states")
    names: list[str] = page.evaluate("bisimetric.data.names")
    inside = set(map(int, names))
    last = next(s for s in inside if (s + 1) % count not in inside)
    why = f"bisimetric.distances[0].explain({names.index(str(last))}, 0)"
    found = page.evaluate(why)
    assert (found["outsidePair"], found["steps"]) == ([names.index(str(last)), 0], [])
    page.evaluate(f"bisimetric.selection.selectPair({names.index(str(last))}, 0)")
    expect(page.locator(".explanation")).to_contain_text(
        "leads to states that are not on this page"
    )
