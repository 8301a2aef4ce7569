"""What a page keeps in the fragment of its address: reloads and links show the same again."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from bisimetric import Distance, explorer
from tests.browser.states import click
from tests.browser.test_episode_page import render_episode_page

Open = Callable[..., Page]
PAIR = "[bisimetric.selection.first, bisimetric.selection.second]"


def test_a_reload_keeps_selection_step_tab_and_theme(show: Open, comparison_page: str) -> None:
    page = show(comparison_page)
    click(page, 4)
    click(page, 20)
    page.get_by_label("one step back").click()
    step = page.locator(".stepper output").text_content() or ""
    page.locator(".theme").click()
    page.wait_for_timeout(500)
    page.reload()
    assert page.evaluate(PAIR) == [4, 20]
    expect(page.locator(".stepper output")).to_have_text(step)
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    # The pair is complete: the next click starts again.
    click(page, 7)
    assert page.evaluate(PAIR) == [7, None]
    page.locator("#distance-select").select_option("2")
    page.locator("#tab-classes").click()
    page.locator("#threshold").fill("3")
    classes = page.locator("#classes").text_content() or ""
    page.wait_for_timeout(500)
    page.reload()
    expect(page.locator("#tab-classes")).to_have_attribute("aria-selected", "true")
    expect(page.locator("#distance-select")).to_have_value("2")
    expect(page.locator("#classes")).to_have_text(classes)
    assert page.evaluate(PAIR) == [7, None]


@pytest.mark.parametrize(
    "fragment",
    [
        "view=nothing&states=99,-1&step=1e9&theme=x",
        "states=1,&distance=7&comparison=a",
        "%%&states",
    ],
)
def test_an_invalid_link_is_ignored(show: Open, comparison_page: str, fragment: str) -> None:
    page = show(comparison_page)
    page.goto(f"{page.url.partition('#')[0]}?#{fragment}")
    expect(page.locator("#view-distances")).to_be_visible()
    assert page.evaluate("bisimetric.selection.distance") == 0
    click(page, 2)
    click(page, 3)
    assert page.evaluate(PAIR) == [2, 3]


def test_a_copied_link_shows_the_same(show: Open, rooms: Distance) -> None:
    page = show(explorer.render_page(rooms))
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    click(page, 4)
    click(page, 20)
    page.locator(".copy-link").click()
    expect(page.locator("#announcement")).to_have_text("link copied")
    link = page.evaluate("navigator.clipboard.readText()")
    assert "states=4%2C20" in link
    page.goto("about:blank")
    page.goto(link)
    assert page.evaluate(PAIR) == [4, 20]
    # In the same tab, another link is shown too.
    page.goto(link.replace("4%2C20", "5%2C7"))
    page.wait_for_timeout(1000)
    assert page.evaluate(PAIR) == [5, 7]


def test_an_episode_keeps_its_frames(show: Open) -> None:
    page = show(render_episode_page()[0])
    page.locator("#source").fill("40")
    page.locator("#compared").fill("52")
    page.locator(".theme").click()
    page.wait_for_timeout(500)
    page.reload()
    expect(page.locator("#source")).to_have_value("40")
    expect(page.locator("#compared")).to_have_value("52")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
