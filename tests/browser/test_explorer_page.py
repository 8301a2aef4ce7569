"""The page in a real browser: pick, explain, compare, slide, by mouse and by keys."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Page, expect

from bisimetric import MDP, Distance, exact, explorer, planning, uses, worlds
from bisimetric.views.layout import number_format

Open = Callable[..., Page]
PATIENCE = 3
"""How many times slower a busy machine may be than the pages are meant for."""


@pytest.fixture(scope="module")
def rooms() -> Distance:
    return exact.bisimulation(worlds.load("mirrored-rooms", discount=0.9))


@pytest.fixture(scope="module")
def several(rooms: Distance) -> dict[str, Distance]:
    mdp = rooms.mdp
    return {
        "d~": rooms,
        "d^pi": exact.on_policy(mdp, planning.greedy_policy(mdp)),
        "lax": exact.lax(mdp),
    }


@pytest.fixture(scope="module")
def compared(several: dict[str, Distance]) -> str:
    return explorer.made(several, title="two rooms").text


def state(page: Page, s: int, view: str = "distances") -> Any:
    return page.locator(f'#view-{view} [data-state="{s}"]').first


def fills(page: Page) -> list[str]:
    found: list[str] = page.eval_on_selector_all(
        "#view-distances [data-state]", "all => all.map(each => each.getAttribute('fill'))"
    )
    return found


def test_a_click_shows_the_world_from_there(show: Open, rooms: Distance) -> None:
    page = show(explorer.page(rooms, title="two rooms"))
    expect(page.locator("h1")).to_have_text("two rooms")
    expect(page.locator("#view-distances [data-state]")).to_have_count(31)
    s = rooms.mdp.state("4,3")
    state(page, s).click()
    found = fills(page)
    row = rooms.values[s]
    written = number_format(rooms.values)
    texts = page.locator("#view-distances .numbers text").all_text_contents()
    assert texts == [written(x) for x in row]
    assert found[s] == "#ffffff"
    # Equal distances have equal colours; the nearest and the farthest have the ends of the scale.
    assert found[int(row.argmax())] == "#fde725"
    assert found[int(np.where(row > 0, row, np.inf).argmin())] == "#440154"
    state(page, 0).hover()
    expect(page.locator("#tip")).to_contain_text("1,1")
    expect(page.locator("#tip")).to_contain_text(f"d~ = {row[0]:.6g}")
    expect(page.locator("#view-distances .picked .first")).to_have_count(1)


def test_a_second_click_shows_why(show: Open, rooms: Distance) -> None:
    page = show(explorer.page(rooms))
    s, t = rooms.mdp.state("1,5"), rooms.mdp.state("5,5")
    state(page, s).click()
    state(page, t).click()
    why = rooms.explain(s, t)
    expect(page.locator("#distance")).to_have_text(f"d~ = {why.distance:.6g}")
    rows = page.locator("table.steps tbody tr")
    expect(rows).to_have_count(len(why.steps))
    first = [
        "0",
        "1,5",
        "5,5",
        rooms.mdp.action_name((why.steps[0].actions or (0,))[0]),
        f"{why.steps[0].gap:g}",
        f"{why.steps[0].adds:.4f}",
        f"{why.steps[0].adds:.4f}",
    ]
    assert rows.first.locator("td").all_text_contents() == first
    expect(page.locator(".sum svg").first).to_be_visible()
    expect(page.locator("#view-distances .paths polyline.first")).to_have_count(1)
    expect(page.locator("#view-distances .paths polyline.second")).to_have_count(1)
    # Step by step, back to the start.
    page.get_by_label("one step back").click()
    expect(page.locator(".stepper output")).to_have_text(
        f"step {len(why.steps) - 1} of {len(why.steps)}"
    )
    page.locator(".play").click()
    expect(page.locator(".play")).to_have_text("▶ play", timeout=20_000)
    expect(page.locator(".stepper output")).to_have_text(
        f"step {len(why.steps)} of {len(why.steps)}"
    )
    # A third click starts again.
    state(page, 3).click()
    expect(page.locator("table.steps")).to_have_count(0)


def test_all_is_done_by_keys(show: Open, rooms: Distance) -> None:
    page = show(explorer.page(rooms))
    name, said = rooms.mdp.name, page.locator("#said")
    title = page.locator("#view-distances .map-title")
    page.locator("#view-distances svg.states-map").focus()
    for key, where in (("ArrowRight", "1,2"), ("ArrowDown", "2,2"), ("ArrowLeft", "2,1")):
        page.keyboard.press(key)
        expect(title).to_have_text(f"bisimulation distance from {where}")
    expect(said).to_contain_text("2,1")
    page.keyboard.press("Enter")
    page.keyboard.press("ArrowUp")
    s, t = rooms.mdp.state("2,1"), rooms.mdp.state("1,1")
    expect(page.locator("#distance")).to_have_text(f"d~ = {rooms(s, t):.6g}")
    expect(page.locator(".why .chip.second")).to_have_text(name(t))
    # An arrow goes over a wall, straight on.
    for _ in range(3):
        page.keyboard.press("ArrowDown")
    expect(page.locator(".why .chip.second")).to_have_text("5,1")
    page.keyboard.press("Escape")
    expect(page.locator("#distance")).to_have_count(0)
    page.keyboard.press("ArrowDown")
    expect(title).to_have_text("bisimulation distance from 3,1")
    page.locator("#tab-distances").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#tab-values")).to_be_focused()
    expect(page.locator("#view-values")).to_be_visible()
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"


def test_two_distances_are_compared(
    show: Open, compared: str, several: dict[str, Distance]
) -> None:
    page = show(compared)
    page.locator("#tab-compare").click()
    d, e = several["d~"].values, several["d^pi"].values
    apart = np.abs(e - d)[np.triu_indices(31, 1)]
    summary = page.locator("#summary")
    expect(summary).to_contain_text("Over 465 pairs of states the two differ")
    expect(summary).to_contain_text(f"by {apart.mean():.4g} in the mean")
    expect(summary).to_contain_text(f"by {apart.max():.4g} at most")
    worst = page.locator("table.pairs tbody tr").first
    cells = worst.locator("td").all_text_contents()
    s, t = (several["d~"].mdp.state(cell) for cell in cells[:2])
    assert abs(e[s, t] - d[s, t]) == apart.max()
    worst.click()
    expect(page.locator("#view-compare .picked .second")).to_have_count(3)
    page.locator("#choose-other").select_option("2")
    lax = several["lax"].values
    above = int((lax > d)[np.triu_indices(31, 1)].sum())
    expect(summary).to_contain_text(f"the larger one for {above or 'none'} of them")
    expect(page.locator("#view-compare svg.states-map")).to_have_count(3)


def test_values_lie_under_the_bound_or_that_is_said(show: Open, rooms: Distance) -> None:
    page = show(explorer.page(rooms))
    page.locator("#tab-values").click()
    verdict = page.locator("#verdict")
    expect(verdict).to_contain_text("All 465 pairs lie under the diagonal.")
    short = dataclasses.replace(rooms, values=rooms.values / 1000, error=math.inf)
    V = planning.optimal_values(rooms.mdp).values
    above = (np.abs(np.subtract.outer(V, V)) > short.values + 1e-6)[np.triu_indices(31, 1)].sum()
    page = show(explorer.page(short))
    page.locator("#tab-values").click()
    expect(page.locator("#verdict")).to_contain_text(f"{above} of 465 pairs lie above the diagonal")


def test_a_slider_merges_states(show: Open, rooms: Distance) -> None:
    page = show(explorer.page(rooms))
    page.locator("#tab-groups").click()
    slider = page.locator("#threshold")
    slider.focus()
    seen = []
    for key in ("Home", "ArrowRight", "ArrowRight", "End"):
        page.keyboard.press(key)
        radius = float(page.locator("#radius").text_content() or "nan")
        words = page.locator("#classes").text_content() or ""
        seen.append(int(words.split()[0]))
        true = uses.aggregate(rooms.mdp, rooms, radius=radius * (1 + 1e-4), rule="complete")
        assert seen[-1] == len(true)
        shown = page.locator("#loss").text_content() or ""
        assert float(shown) == pytest.approx(true.loss, rel=1e-3, abs=1e-9)
        promised = page.locator("#promised").text_content() or ""
        assert float(promised.split()[-1]) == pytest.approx(true.promised, rel=1e-3, abs=1e-6)
    assert seen[0] > seen[1] > seen[2] > seen[3] == 1
    state(page, 4, "groups").hover()
    expect(page.locator("#tip")).to_contain_text("in a class of 31 states")


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("dark", [False, True])
def test_nothing_is_wider_than_the_window(
    show: Open, compared: str, width: int, dark: bool
) -> None:
    page = show(compared, width=width, dark=dark)
    state(page, 12).click()
    state(page, 25).click()
    for view in ("distances", "compare", "values", "groups"):
        page.locator(f"#tab-{view}").click()
        over = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert page.evaluate(over) <= 0, view
    light = "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)[0] > 128"
    assert page.evaluate(light) is not dark
    page.locator(".theme").click()
    assert page.evaluate(light) is dark


def test_words_are_explained(show: Open, rooms: Distance) -> None:
    page = show(explorer.page(rooms))
    page.locator(".facts-line [data-term=discount]").focus()
    expect(page.locator("#tip")).to_contain_text("How much the next step counts")
    for view in ("distances", "values", "groups"):
        page.locator(f"#tab-{view}").click()
    for term in page.locator("[data-term]").all():
        term.dispatch_event("pointerover", {"bubbles": True})
        assert (page.locator("#tip").text_content() or "undefined") != "undefined"


def test_2000_states_are_repainted_within_100_ms(show: Open) -> None:
    mdp = worlds.load("open-grid", rows=40, columns=50, obstacles=0, discount=0.9)
    d = Distance(uses.map_distances(mdp), math.inf, "bisimulation", mdp)
    page = show(explorer.page(d))
    expect(page.locator("#view-distances [data-state]")).to_have_count(2000)
    # From the click until the frame after the one that shows it.
    taken = page.evaluate(
        """async () => {
          const frame = () => new Promise((done) => requestAnimationFrame(done));
          const found = [];
          for (let k = 0; k < 14; k++) {
            const cell = document.querySelector(`#view-distances [data-state="${137 * k + 9}"]`);
            await frame();
            const start = performance.now();
            cell.dispatchEvent(new MouseEvent("click", { bubbles: true }));
            await frame();
            await frame();
            found.push(performance.now() - start);
          }
          return found;
        }"""
    )
    assert statistics.median(taken) < PATIENCE * 100
    expect(page.locator("#view-distances .picked .first")).to_have_count(1)


def test_a_path_that_leaves_the_sample_says_so(show: Open) -> None:
    count = 2_400
    after = (np.arange(count) + 1) % count
    rewards = np.sin(np.arange(count))
    mdp = MDP.deterministic(after[:, None], rewards[:, None], discount=0.9)
    d = exact.on_policy(mdp, np.zeros(count, np.int64))
    page = show(explorer.page(d))
    expect(page.locator(".note")).to_contain_text("2,000 of 2,400 states")
    names: list[str] = page.evaluate("bisimetric.data.names")
    inside = set(map(int, names))
    last = next(s for s in inside if (s + 1) % count not in inside)
    why = f"bisimetric.tables[0].explain({names.index(str(last))}, 0)"
    found = page.evaluate(why)
    assert (found["left"], found["steps"]) == ([names.index(str(last)), 0], [])
    page.evaluate(f"bisimetric.selection.choose({names.index(str(last))}, 0)")
    expect(page.locator(".why")).to_contain_text("leads to states that are not on this page")
