"""The page in a real browser: pick, explain, compare, slide, by mouse and by keys."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import numpy as np
import pytest
from matplotlib.colors import to_hex
from playwright.sync_api import Page, expect

from bisimetric import Distance, explorer, planning, uses
from bisimetric.views import layout, plot_classes
from bisimetric.views.layout import build_number_format
from tests.browser.states import click, hover

Open = Callable[..., Page]


COLOURS = """(view) => {
  const { layout, stateCanvas: { canvas, scale } } = bisimetric.views.get(view).map;
  const { width, height } = canvas;
  const copy = new OffscreenCanvas(width, height).getContext("2d", { willReadFrequently: true });
  copy.drawImage(canvas, 0, 0);
  const { data } = copy.getImageData(0, 0, width, height);
  const hex = (part) => part.toString(16).padStart(2, "0");
  return layout.x.map((x, s) => {
    const at = 4 * (Math.floor(layout.y[s] * scale) * width + Math.floor(x * scale));
    return "#" + [...data.slice(at, at + 4)].map(hex).join("");
  });
}"""


def read_colours(page: Page, view: str = "distances") -> list[str]:
    """What is painted in the middle of each state: red, green, blue and how dense."""
    found: list[str] = page.evaluate(COLOURS, view)
    return found


def test_a_click_shows_the_distances_from_a_state(show: Open, rooms: Distance) -> None:
    page = show(explorer.render_page(rooms, title="two rooms"))
    expect(page.locator("h1")).to_have_text("two rooms")
    s = rooms.mdp.state("4,3")
    click(page, s)
    found = read_colours(page)
    row = rooms.values[s]
    written = build_number_format(rooms.values)
    texts = page.locator("#view-distances .numbers text").all_text_contents()
    assert texts == [written(x) for x in row]
    assert found[s] == "#ffffffff"
    # Equal distances have equal colours; the nearest and the farthest have the ends of the scale.
    assert found[int(row.argmax())] == "#fde725ff"
    assert found[int(np.where(row > 0, row, np.inf).argmin())] == "#440154ff"
    hover(page, 0)
    expect(page.locator("#tooltip")).to_contain_text("1,1")
    expect(page.locator("#tooltip")).to_contain_text(f"d~ = {row[0]:.6g}")
    expect(page.locator("#view-distances .selected .first")).to_have_count(1)


def test_a_second_click_shows_the_explanation(show: Open, rooms: Distance) -> None:
    page = show(explorer.render_page(rooms))
    s, t = rooms.mdp.state("1,5"), rooms.mdp.state("5,5")
    click(page, s)
    click(page, t)
    why = rooms.explain(s, t)
    expect(page.locator("#distance")).to_have_text(f"d~ = {why.distance:.6g}")
    rows = page.locator("table.steps tbody tr")
    expect(rows).to_have_count(len(why.steps))
    first = [
        "0",
        "1,5",
        "5,5",
        rooms.mdp.action_name((why.steps[0].actions or (0,))[0]),
        f"{why.steps[0].reward_gap:g}",
        f"{why.steps[0].contribution:.4f}",
        f"{why.steps[0].contribution:.4f}",
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
    click(page, 3)
    expect(page.locator("table.steps")).to_have_count(0)


def test_everything_works_by_keyboard(show: Open, rooms: Distance) -> None:
    page = show(explorer.render_page(rooms))
    name, said = rooms.mdp.state_name, page.locator("#announcement")
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
    expect(page.locator(".explanation .chip.second")).to_have_text(name(t))
    # An arrow goes over a wall, straight on.
    for _ in range(3):
        page.keyboard.press("ArrowDown")
    expect(page.locator(".explanation .chip.second")).to_have_text("5,1")
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
    show: Open, comparison_page: str, several: dict[str, Distance]
) -> None:
    page = show(comparison_page)
    page.locator("#tab-compare").click()
    d, e = several["d~"].values, several["d^pi"].values
    apart = np.abs(e - d)[np.triu_indices(31, 1)]
    summary = page.locator("#summary")
    expect(summary).to_contain_text("Over 465 pairs of states the two differ")
    expect(summary).to_contain_text(f"by {apart.mean():.4g} on average")
    expect(summary).to_contain_text(f"by {apart.max():.4g} at most")
    worst = page.locator("table.pairs tbody tr").first
    cells = worst.locator("td").all_text_contents()
    s, t = (several["d~"].mdp.state(cell) for cell in cells[:2])
    assert abs(e[s, t] - d[s, t]) == apart.max()
    worst.click()
    expect(page.locator("#view-compare .selected .second")).to_have_count(3)
    page.locator("#select-comparison").select_option("2")
    lax = several["lax"].values
    above = int((lax > d)[np.triu_indices(31, 1)].sum())
    expect(summary).to_contain_text(f"larger for {above or 'none'} of them")
    expect(page.locator("#view-compare svg.states-map")).to_have_count(3)


def test_a_dot_of_a_pair_has_a_tooltip_and_selects_it(
    show: Open, comparison_page: str, several: dict[str, Distance]
) -> None:
    page = show(comparison_page)
    click(page, 7)
    page.locator("#tab-compare").click()
    own = page.evaluate("bisimetric.views.get('compare').plot.selectedPairs")
    assert [pair["t"] for pair in own] == [t for t in range(31) if t != 7]
    dot = max(own, key=lambda pair: pair["x"])
    plot = page.locator("#view-compare .pair-plot")
    plot.hover(position={"x": dot["left"], "y": dot["top"]})
    d, e = several["d~"], several["d^pi"]
    expect(page.locator("#tooltip")).to_contain_text(f"{d(7, dot['t']):.5g}")
    expect(page.locator("#tooltip")).to_contain_text(f"{e(7, dot['t']):.5g}")
    plot.click(position={"x": dot["left"], "y": dot["top"]})
    legend = page.locator("#view-compare .dot.second")
    expect(legend).to_have_count(1)
    page.locator("#tab-distances").click()
    chosen = page.locator(".explanation .chip.second").text_content() or ""
    there = d.mdp.state(chosen)
    assert (d(7, there), e(7, there)) == pytest.approx((dot["x"], dot["y"]))


def test_values_lie_below_the_bound_or_violations_are_counted(show: Open, rooms: Distance) -> None:
    page = show(explorer.render_page(rooms))
    page.locator("#tab-values").click()
    verdict = page.locator("#verdict")
    expect(verdict).to_contain_text("All 465 pairs lie below the diagonal.")
    short = dataclasses.replace(rooms, values=rooms.values / 1000, error=math.inf)
    V = planning.optimal_values(rooms.mdp).values
    above = (np.abs(np.subtract.outer(V, V)) > short.values + 1e-6)[np.triu_indices(31, 1)].sum()
    page = show(explorer.render_page(short))
    page.locator("#tab-values").click()
    expect(page.locator("#verdict")).to_contain_text(f"{above} of 465 pairs lie above the diagonal")


def test_a_slider_merges_states(show: Open, rooms: Distance) -> None:
    page = show(explorer.render_page(rooms))
    page.locator("#tab-classes").click()
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
        shown = page.locator("#regret").text_content() or ""
        assert float(shown) == pytest.approx(true.regret, rel=1e-3, abs=1e-9)
        bound = page.locator("#bound").text_content() or ""
        assert float(bound.split()[-1]) == pytest.approx(true.regret_bound, rel=1e-3, abs=1e-6)
    assert seen[0] > seen[1] > seen[2] > seen[3] == 1
    hover(page, 4, "classes")
    expect(page.locator("#tooltip")).to_contain_text("in a class of 31 states")


def test_a_class_is_highlighted(show: Open, rooms: Distance) -> None:
    page = show(explorer.render_page(rooms))
    page.locator("#tab-classes").click()
    page.locator("#threshold").fill("8")
    radius = float(page.evaluate("bisimetric.distances[0].aggregation.thresholds[8].radius"))
    labels = uses.cluster(rooms, radius=radius, rule="complete")
    assert {shade[-2:] for shade in read_colours(page, "classes")} == {"ff"}
    s = int(np.flatnonzero(labels == np.bincount(labels).argmax())[0])
    hover(page, s, "classes")
    dense = [shade.endswith("ff") for shade in read_colours(page, "classes")]
    assert dense == (labels == labels[s]).tolist()
    page.mouse.move(2, 2)
    assert {shade[-2:] for shade in read_colours(page, "classes")} == {"ff"}
    # By keys: the class of the state that the arrows have come to, which is said too.
    page.locator("#view-classes svg.states-map").focus()
    page.keyboard.press("ArrowRight")
    at = int(page.evaluate("bisimetric.selection.cursor"))
    dense = [shade.endswith("ff") for shade in read_colours(page, "classes")]
    assert dense == (labels == labels[at]).tolist()
    expect(page.locator("#announcement")).to_contain_text("class")


def test_distances_in_units_of_reward_per_step(show: Open, rooms: Distance) -> None:
    page = show(explorer.render_page(rooms))
    click(page, 0)
    before = read_colours(page)
    page.locator("#per-step").check()
    scale = 1 - rooms.mdp.discount
    written = build_number_format(rooms.values * scale)
    texts = page.locator("#view-distances .numbers text").all_text_contents()
    assert texts == [written(x) for x in rooms.values[0] * scale]
    assert read_colours(page) == before
    page.locator("#per-step").uncheck()
    texts = page.locator("#view-distances .numbers text").all_text_contents()
    assert texts == [build_number_format(rooms.values)(x) for x in rooms.values[0]]


def test_a_few_far_states_make_the_scale_logarithmic(show: Open) -> None:
    near = np.linspace(0.01, 0.05, 20)
    values = np.abs(np.subtract.outer(near, near))
    values[0, 1:] = values[1:, 0] = near[1:]
    values[0, -1] = values[-1, 0] = 4.0
    page = show(explorer.render_page(values))
    click(page, 0)
    expect(page.locator("#view-distances .scale")).to_contain_text("logarithmic scale")
    click(page, 5)
    click(page, 5)
    expect(page.locator("#view-distances .scale")).not_to_contain_text("logarithmic scale")


def test_paths_are_below_numbers_and_beside_them(show: Open, rooms: Distance) -> None:
    page = show(explorer.render_page(rooms))
    click(page, rooms.mdp.state("1,5"))
    click(page, rooms.mdp.state("5,5"))
    order = page.evaluate(
        "[...document.querySelector('#view-distances .states-map').children].map("
        "(layer) => layer.classList[0])"
    )
    assert order.index("paths") < order.index("numbers")
    for which in ("first", "second"):
        line = page.locator(f"#view-distances .paths polyline.{which}").get_attribute("points")
        assert line is not None
        heights = [float(point.split(",")[1]) % 1 for point in line.split()]
        # The numbers take the middle third of a cell.
        assert all(height < 1 / 3 or height > 2 / 3 for height in heights)


def test_classes_have_the_numbers_and_colours_of_the_command_line(
    show: Open, rooms: Distance
) -> None:
    page = show(explorer.render_page(rooms))
    page.locator("#tab-classes").click()
    page.locator("#threshold").fill("8")
    radius = float(page.evaluate("bisimetric.distances[0].aggregation.thresholds[8].radius"))
    labels = uses.aggregate(rooms.mdp, rooms, radius=radius, rule="complete").labels
    texts = page.locator("#view-classes .numbers text").all_text_contents()
    assert texts == [str(label) for label in labels]
    axes = plot_classes(rooms.mdp, labels).axes[0]
    cells = layout.find_cells(rooms.mdp)
    assert cells is not None
    image = axes.images[0]
    painted = np.asarray(image.cmap(image.norm(np.asarray(image.get_array()))))
    drawn = painted[cells.rows, cells.columns]
    several = np.bincount(labels)[labels] > 1
    expected = [to_hex(colour, keep_alpha=True) for colour in drawn[several]]
    assert list(np.array(read_colours(page, "classes"))[several]) == expected
