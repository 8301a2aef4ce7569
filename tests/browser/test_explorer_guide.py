"""The guide of a first visit, the search for states, and the norms of the colour scale."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pytest
from playwright.sync_api import Page, expect

from bisimetric import MDP, Distance, exact, explorer, worlds
from tests.browser.states import click
from tests.browser.test_explorer_accessibility import assert_targets, list_violations

Open = Callable[..., Page]
PAIR = "[bisimetric.selection.first, bisimetric.selection.second]"
OVER = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


def test_the_guide_explains_a_pair_in_three_steps(show: Open, rooms: Distance) -> None:
    page = show(explorer.render_page(rooms), fragment="")
    text, guide = page.locator("#guide-text"), page.locator(".guide")
    expect(text).to_contain_text("Each colour is the distance")
    first, second = page.evaluate(PAIR)
    assert second is None
    page.get_by_role("button", name="next").focus()
    page.keyboard.press("Enter")
    expect(text).to_contain_text("are neighbours on the map")
    assert page.evaluate(PAIR)[0] == first
    second = page.evaluate(PAIR)[1]
    expect(text).to_contain_text(f"{rooms(first, second):.4g}, ")
    expect(page.locator("#announcement")).to_contain_text("are neighbours on the map")
    assert page.locator("#view-distances .paths polyline").count() == 4
    page.keyboard.press("Enter")
    expect(text).to_contain_text("add up to the distance")
    expect(guide).to_contain_text("3 of 3")
    steps = page.evaluate(
        "bisimetric.views.get('distances').explanationPanel.explanation.steps.length"
    )
    expect(page.locator(".stepper output")).to_have_text(f"step {steps} of {steps}")
    page.get_by_role("button", name="back", exact=True).click()
    expect(guide).to_contain_text("2 of 3")
    page.get_by_role("button", name="next").click()
    page.get_by_role("button", name="done").click()
    assert not guide.is_visible()
    assert page.evaluate(PAIR) == [first, second]
    assert page.evaluate("document.activeElement.matches('svg.states-map')")
    page.wait_for_timeout(500)
    assert f"states={first}%2C{second}" in page.url


def test_the_guide_is_not_shown_again(show: Open, rooms: Distance) -> None:
    page = show(explorer.render_page(rooms), fragment="")
    address = page.url.partition("#")[0]
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    expect(page.locator(".guide")).to_be_visible()
    page.get_by_role("button", name="next").click()
    pair = page.evaluate(PAIR)
    page.locator(".copy-link").click()
    expect(page.locator("#announcement")).to_have_text("link copied")
    link = page.evaluate("navigator.clipboard.readText()")
    page.evaluate("localStorage.clear()")
    page.goto("about:blank")
    page.goto(link)
    assert page.evaluate(PAIR) == pair
    assert page.locator(".guide").count() == 0
    # In another window without a link it is shown once more; skipped, it is gone.
    page.goto("about:blank")
    page.goto(address)
    page.get_by_role("button", name="skip").click()
    page.goto("about:blank")
    page.goto(address)
    expect(page.locator("#view-distances")).to_be_visible()
    assert page.locator(".guide").count() == 0
    page.locator("#tab-values").click()
    page.locator(".show-guide").click()
    expect(page.locator(".guide")).to_be_visible()
    expect(page.locator("#tab-distances")).to_have_attribute("aria-selected", "true")


def test_a_click_ends_the_guide(show: Open, rooms: Distance) -> None:
    page = show(explorer.render_page(rooms), fragment="")
    expect(page.locator(".guide")).to_be_visible()
    click(page, 4)
    assert not page.locator(".guide").is_visible()
    click(page, 20)
    assert page.evaluate(PAIR) == [4, 20]


def test_the_guide_fits_other_pages(show: Open) -> None:
    lake = exact.bisimulation(worlds.load("random", states=20, successors=2, discount=0.9))
    page = show(explorer.render_page(lake), fragment="")
    for words in ("next", "next"):
        page.get_by_role("button", name=words).click()
    expect(page.locator("#guide-text")).to_contain_text("matched successors")
    # A matrix has no explanation, and equal states have no striking pair.
    page = show(explorer.render_page([[0.0, 1.0], [1.0, 0.0]]), fragment="")
    expect(page.locator(".guide")).to_contain_text("1 of 2")
    page.get_by_role("button", name="next").click()
    expect(page.locator("#guide-text")).to_contain_text("the largest of all")
    page = show(explorer.render_page([[0.0, 0.0], [0.0, 0.0]]), fragment="")
    expect(page.locator("#view-distances")).to_be_visible()
    assert not page.locator(".guide").is_visible()


@pytest.mark.parametrize(("width", "dark"), [(1280, True), (390, False)])
def test_guide_menu_and_search_are_accessible(
    show: Open, comparison_page: str, width: int, dark: bool
) -> None:
    page = show(comparison_page, width=width, dark=dark, strict=False, fragment="")
    for _ in range(3):
        assert list_violations(page) == []
        assert_targets(page)
        assert page.evaluate(OVER) <= 0
        # On a phone the guide stays on the screen.
        expect(page.locator(".guide")).to_be_in_viewport()
        page.locator(".guide button").last.click()
    page.locator("summary").click()
    assert_targets(page)
    found = list_violations(page)
    assert found == [], json.dumps(found, indent=1)
    page.locator("#find-state").fill("1,")
    assert_targets(page)
    for option in page.locator("#found-states li").all():
        assert (option.bounding_box() or {"height": 0})["height"] >= 23.9
    found = list_violations(page)
    assert found == [], json.dumps(found, indent=1)
    assert page.evaluate(OVER) <= 0


def test_states_are_found_by_name_and_number(show: Open, rooms: Distance) -> None:
    page = show(explorer.render_page(rooms))
    box = page.get_by_role("combobox", name="find a state")
    names = [rooms.mdp.state_name(s) for s in range(rooms.mdp.num_states)]
    box.focus()
    page.keyboard.type("5,")
    expect(box).to_have_attribute("aria-expanded", "true")
    options = page.get_by_role("option")
    expect(options.first).to_contain_text("5,1")
    page.keyboard.press("ArrowDown")
    expect(options.nth(1)).to_have_attribute("aria-selected", "true")
    assert box.get_attribute("aria-activedescendant") == options.nth(1).get_attribute("id")
    page.keyboard.press("Enter")
    assert page.evaluate(PAIR) == [names.index("5,2"), None]
    # The focus stays, so that the next name is typed at once; by number.
    page.keyboard.type("#30")
    page.keyboard.press("Enter")
    assert page.evaluate(PAIR) == [names.index("5,2"), 30]
    expect(page.locator(".stepper")).to_be_visible()
    page.keyboard.type("nowhere")
    expect(page.locator("#announcement")).to_have_text("no such state")
    page.keyboard.press("Enter")
    assert page.evaluate(PAIR) == [names.index("5,2"), 30]
    page.keyboard.press("Escape")
    expect(box).to_have_value("")
    expect(box).to_have_attribute("aria-expanded", "false")
    # By pointer.
    box.fill("1,1")
    options.first.click()
    assert page.evaluate(PAIR) == [0, None]


def test_numbers_of_a_sample_are_those_of_the_mdp(show: Open) -> None:
    count = 2_400
    after = ((np.arange(count) + 1) % count)[:, None]
    names = [f"ring {s % 7}/{s}" for s in range(count)]
    mdp = MDP.deterministic(after, np.sin(after), discount=0.9, names=names)
    built = explorer.build_page({"d": exact.on_policy(mdp, np.zeros(count, np.int64))})
    assert built.num_shown < count
    page = show(built.html)
    last = page.evaluate("bisimetric.data.ids.at(-1)")
    page.locator("#find-state").fill(f"#{last}")
    page.keyboard.press("Enter")
    assert page.evaluate("bisimetric.data.names[bisimetric.selection.first]") == names[last]


def test_the_norm_of_the_colour_scale_is_chosen_and_kept(show: Open, rooms: Distance) -> None:
    page = show(explorer.render_page(rooms))
    click(page, 4)
    legend = page.locator("#view-distances .scale")
    colours = "new Set(bisimetric.views.get('distances').map.lastPaint[0]).size"
    expect(page.locator("#norm")).to_have_value("auto")
    seen = {}
    for norm, note in [("linear", "distance 0"), ("log", "logarithmic"), ("quantile", "quantile")]:
        page.locator("#norm").select_option(norm)
        expect(legend).to_contain_text(note)
        seen[norm] = page.evaluate("bisimetric.views.get('distances').map.lastPaint[0]")
        ticks = legend.locator(".ticks span").all_text_contents()
        assert float(ticks[0]) < float(ticks[1]) < float(ticks[2])
    assert seen["linear"] != seen["log"] != seen["quantile"]
    # Quantiles use more of the colours.
    assert page.evaluate(colours) > len(set(seen["linear"]))
    page.locator("#shared-scale").check()
    expect(legend).to_contain_text("quantile")
    page.wait_for_timeout(500)
    assert "scale=quantile" in page.url
    page.reload()
    expect(page.locator("#norm")).to_have_value("quantile")
    expect(legend).to_contain_text("quantile")
