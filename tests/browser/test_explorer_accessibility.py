"""The rules of axe, summaries of charts, texts of images, and sizes of targets."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from bisimetric import Distance, exact, explorer, worlds
from tests.browser.test_episode_page import render_episode_page

Open = Callable[..., Page]
VIEWS = ("distances", "compare", "values", "classes")
TARGETS = "button:visible, select:visible, input:visible, summary:visible"


def list_violations(page: Page) -> list[Any]:
    """The violations that axe finds; its script comes with a package for tests."""
    package = pytest.importorskip("axe_playwright_python")
    script = Path(package.__file__).with_name("axe.min.js").read_text(encoding="utf-8")
    page.evaluate(f"() => {{ {script} }}")
    found = page.evaluate("async () => (await axe.run()).violations")
    return [(each["id"], [node["html"][:200] for node in each["nodes"]]) for each in found]


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (390, True)])
def test_axe_finds_no_violation(show: Open, comparison_page: str, width: int, dark: bool) -> None:
    page = show(comparison_page, width=width, dark=dark, strict=False)
    assert list_violations(page) == []
    page.evaluate("bisimetric.selection.selectPair(4, 20)")
    for view in VIEWS:
        page.locator(f"#tab-{view}").click()
        found = list_violations(page)
        assert found == [], json.dumps(found, indent=1)


def test_axe_finds_no_violation_in_couplings_and_points(show: Open) -> None:
    mdp = worlds.load("random", states=40, successors=2, discount=0.9)
    page = show(explorer.render_page(exact.bisimulation(mdp)), strict=False)
    page.evaluate("bisimetric.selection.selectPair(1, 2)")
    assert list_violations(page) == []


@pytest.mark.parametrize("dark", [False, True])
def test_axe_finds_no_violation_in_an_episode(show: Open, dark: bool) -> None:
    page = show(render_episode_page()[0], dark=dark, strict=False)
    assert list_violations(page) == []


def test_charts_are_images_with_summaries(
    show: Open, comparison_page: str, rooms: Distance
) -> None:
    page = show(comparison_page)
    page.evaluate("bisimetric.selection.selectPair(4, 20)")
    expected = {
        "distances": f"the distance is {rooms(4, 20):.6g}",
        "compare": "the two differ by",
        "values": "All 465 pairs lie below the diagonal",
        "classes": "realised regret",
    }
    for view, words in expected.items():
        page.locator(f"#tab-{view}").click()
        chart = page.locator(f"#view-{view} svg[role=img]")
        expect(chart).to_have_count(1)
        assert words in (chart.get_attribute("aria-label") or "")
    episode = show(render_episode_page()[0])
    labels = [
        chart.get_attribute("aria-label") or ""
        for chart in episode.locator("#curve svg[role=img]").all()
    ]
    assert "from frame 0: smallest" in labels[0]
    assert labels[1].startswith("Curve of the values")


def test_frames_are_described(show: Open) -> None:
    page = show(render_episode_page()[0])
    page.locator("#compared").fill("52")
    alt = page.locator(".screen img").nth(1).get_attribute("alt") or ""
    assert alt.startswith("screen of frame 52, value ")
    assert alt.endswith(", life lost")


@pytest.mark.parametrize("width", [1280, 390])
def test_targets_have_24_pixels(show: Open, comparison_page: str, width: int) -> None:
    page = show(comparison_page, width=width)
    pages = [(page, view, pair) for view in VIEWS for pair in ("clear()", "selectPair(4, 20)")]
    for each, view, pair in pages:
        each.evaluate(f"bisimetric.selection.{pair}")
        each.locator(f"#tab-{view}").click()
        assert_targets(each)
    assert_targets(show(render_episode_page()[0], width=width))


def assert_targets(page: Page) -> None:
    for target in page.locator(TARGETS).all():
        box = target.bounding_box()
        assert box is not None
        assert min(box["width"], box["height"]) >= 23.9, target.evaluate("(node) => node.outerHTML")
