"""The page by keys: pairs, focus, arrows between points, tabs and tooltips."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from playwright.sync_api import Page, expect

from bisimetric import Distance, exact, explorer, worlds
from tests.browser.states import click
from tests.browser.test_episode_page import render_episode_page

Open = Callable[..., Page]
PAIR = "[bisimetric.selection.first, bisimetric.selection.second]"


def test_enter_selects_a_pair_and_a_third_enter_starts_again(show: Open, rooms: Distance) -> None:
    page = show(explorer.render_page(rooms))
    page.locator("#view-distances svg.states-map").focus()
    for key in ("ArrowRight", "Enter", "ArrowDown", "ArrowDown", "Enter"):
        page.keyboard.press(key)
    assert page.evaluate(PAIR) == [1, 11]
    expect(page.locator("#distance")).to_have_text(f"d~ = {rooms(1, 11):.6g}")
    # An arrow changes the second state, and Enter selects it.
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Enter")
    assert page.evaluate(PAIR) == [1, 10]
    page.keyboard.press("Enter")
    assert page.evaluate(PAIR) == [10, None]
    # A click selects the second state too, whatever the arrows moved to.
    page.keyboard.press("ArrowUp")
    click(page, 3)
    assert page.evaluate(PAIR) == [10, 3]


def test_focus_stays_in_the_explanation_after_a_neighbour(show: Open, rooms: Distance) -> None:
    page = show(explorer.render_page(rooms))
    page.locator(".neighbours button").nth(2).focus()
    page.keyboard.press("Enter")
    expect(page.locator(".explanation h2")).to_be_focused()
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    expect(page.get_by_label("one step back")).to_be_focused()


@pytest.mark.parametrize("option", ["#shared-scale", "#per-step"])
def test_focus_stays_on_an_option(show: Open, rooms: Distance, option: str) -> None:
    page = show(explorer.render_page(rooms))
    page.locator(option).focus()
    page.keyboard.press("Space")
    expect(page.locator(option)).to_be_checked()
    expect(page.locator(option)).to_be_focused()


def test_focus_stays_on_a_compared_pair(show: Open, comparison_page: str) -> None:
    page = show(comparison_page)
    page.locator("#tab-compare").click()
    button = page.locator("table.pairs button").nth(3)
    button.focus()
    page.keyboard.press("Enter")
    expect(button).to_be_focused()
    expect(page.locator("table.pairs tbody tr").nth(3)).to_have_class("current")
    assert page.evaluate(PAIR)[1] is not None


def test_focus_stays_on_a_thumbnail(show: Open) -> None:
    page = show(render_episode_page()[0])
    thumb = page.locator("#furthest button").nth(1)
    frame = (thumb.locator("span").first.text_content() or "").split()[-1]
    thumb.focus()
    page.keyboard.press("Enter")
    expect(page.locator("#source")).to_have_value(frame)
    expect(thumb).to_be_focused()
    # The frame that the button shows after that is compared and announced.
    shown = (thumb.locator("span").first.text_content() or "").split()[-1]
    expect(page.locator("#compared")).to_have_value(shown)
    expect(page.locator("#announcement")).to_contain_text(f"source frame {frame}")


def test_rows_of_steps_move_to_a_step(show: Open, rooms: Distance) -> None:
    page = show(explorer.render_page(rooms))
    page.evaluate("bisimetric.selection.selectPair(4, 20)")
    page.locator("table.steps tbody tr").nth(1).click()
    expect(page.locator(".stepper output")).to_contain_text("step 2 of")


# For each direction, the state that an arrow leads to from each state.
ARROWS = """() => {
  const { layout } = bisimetric.views.get("distances").map;
  const directions = [[1, 0], [-1, 0], [0, 1], [0, -1]];
  return directions.map(([dx, dy]) =>
    layout.x.map((_, s) => layout.findNeighbour(s, dx, dy)));
}"""


def test_arrows_reach_all_points_and_return(show: Open) -> None:
    d = exact.bisimulation(worlds.load("random", states=150, successors=2, discount=0.9))
    page = show(explorer.render_page(d))
    right, left, down, up = np.array(page.evaluate(ARROWS))
    states = np.arange(150)
    for there, back in ((right, left), (left, right), (down, up), (up, down)):
        moved = there != states
        assert (back[there][moved] == states[moved]).all()
        # All states are reachable by two opposite arrows.
        found = {0}
        while len(found) < len(found := found | {int(x[s]) for s in found for x in (there, back)}):
            pass
        assert len(found) == 150
    # A step to the right leads to the right, but at the end of a row.
    x = np.array(page.evaluate("bisimetric.views.get('distances').map.layout.x"))
    assert (x[right] < x).sum() < 20
    page.locator("#view-distances svg.states-map").focus()
    page.keyboard.press("ArrowRight")
    assert page.evaluate("bisimetric.selection.cursor") == right[0]


@pytest.mark.parametrize("name", ["mirrored-rooms", "CliffWalking-v1"])
def test_arrows_reach_all_cells(show: Open, name: str) -> None:
    mdp = worlds.load(name, discount=0.9)
    page = show(explorer.render_page(exact.bisimulation(mdp)))
    moves = np.array(page.evaluate(ARROWS))
    found = {0}
    while len(found) < len(found := found | {int(x[s]) for s in found for x in moves}):
        pass
    assert len(found) == mdp.num_states


def test_tabs_by_home_and_end(show: Open, rooms: Distance) -> None:
    page = show(explorer.render_page(rooms))
    page.locator("#tab-distances").focus()
    page.keyboard.press("End")
    expect(page.locator("#tab-classes")).to_be_focused()
    expect(page.locator("#view-classes")).to_be_visible()
    page.keyboard.press("Home")
    expect(page.locator("#tab-distances")).to_be_focused()


def test_a_tooltip_follows_its_word_and_escape_hides_it(show: Open, rooms: Distance) -> None:
    page = show(explorer.render_page(rooms))
    page.set_viewport_size({"width": 1280, "height": 500})
    word = page.locator("#view-distances .map-title [data-term]")
    tooltip = page.locator("#tooltip")
    word.focus()
    expect(tooltip).to_be_visible()

    def measure_gap() -> float:
        below, above = tooltip.bounding_box(), word.bounding_box()
        assert below is not None
        assert above is not None
        return below["y"] - above["y"]

    gap = measure_gap()
    page.evaluate("window.scrollBy(0, 60)")
    page.wait_for_timeout(100)
    assert measure_gap() == pytest.approx(gap, abs=1)
    # Outside of the window there is nothing to explain.
    page.evaluate("window.scrollBy(0, 400)")
    expect(tooltip).to_be_hidden()
    page.evaluate("window.scrollTo(0, 0)")
    page.locator("h1").click()
    word.focus()
    expect(tooltip).to_be_visible()
    page.keyboard.press("Escape")
    expect(tooltip).to_be_hidden()
    expect(word).to_be_focused()


RECORD_ANNOUNCEMENTS = """() => {
  window.announcements = [];
  const node = document.getElementById("announcement");
  const record = () => window.announcements.push(node.textContent);
  new MutationObserver(record).observe(node, { childList: true });
}"""


def test_steps_are_announced_during_playback(show: Open, rooms: Distance) -> None:
    page = show(explorer.render_page(rooms))
    page.evaluate("bisimetric.selection.selectPair(4, 20)")
    page.evaluate(RECORD_ANNOUNCEMENTS)
    page.locator(".play").click()
    expect(page.locator(".play")).to_have_text("▶ play", timeout=20_000)
    heard = page.evaluate("window.announcements")
    cumulative = np.cumsum([step.contribution for step in rooms.explain(4, 20).steps])
    assert heard == [f"step {k + 1} of 6, sum {x:.4g}" for k, x in enumerate(cumulative)]
