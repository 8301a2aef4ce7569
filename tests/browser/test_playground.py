"""The playground: its numbers against `exact`, painting, keys, links, undo and the Worker."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from playwright.sync_api import Page, Position, expect

from bisimetric import MDP, Distance, exact, explorer, planning, uses, worlds
from bisimetric.worlds.builtin import MIRRORED_ROOMS, MIRRORED_ROOMS_POLICY
from tests.browser.test_explorer_accessibility import assert_targets, list_violations

Open = Callable[..., Page]
TOLERANCE = 1e-9
"""Of the page's distances, beyond the proven error of `exact`; docs/playground.md states it."""
REWARDS = "*******\n*1   g*\n* **x *\n* 5 x *\n*   9 *\n*******"
KINDS = ("bisimulation", "on_policy", "lax")
SHOW = """([text, kind, discount]) => {
  const lines = text.split("\\n").filter(Boolean);
  const grid = { rows: lines.length, columns: lines[0].length, cells: lines.join("") };
  bisimetric.change({ grid, kind, discount });
}"""


def show_grid(page: Page, text: str, kind: str, discount: float) -> None:
    """Show a grid, and wait until its distances are computed."""
    page.evaluate(SHOW, [text, kind, discount])
    # `wait_for_function` evaluates text, which the policy of the page does not allow.
    for _ in range(600):
        if page.evaluate("bisimetric.distance !== null"):
            return
        page.wait_for_timeout(100)
    raise AssertionError("no distances after a minute")


def read_distances(page: Page, num_states: int) -> NDArray[np.float64]:
    values = page.evaluate("Array.from(bisimetric.distance.matrix.values)")
    assert len(values) == num_states * (num_states + 1) // 2
    full = np.zeros((num_states, num_states))
    full[np.tril_indices(num_states)] = values
    return np.maximum(full, full.T)


def compute_reference(page: Page, mdp: MDP, kind: str) -> Distance:
    """The exact distance; d^pi of the policy of the page, which is optimal or that of the MDP."""
    if kind != "on_policy":
        return exact.lax(mdp) if kind == "lax" else exact.bisimulation(mdp)
    policy = np.array(page.evaluate("Array.from(bisimetric.distance.policy)"))
    if mdp.policy is not None:
        np.testing.assert_array_equal(policy, mdp.policy)
    else:
        values, best = planning.policy_values(mdp, policy), planning.optimal_values(mdp)
        np.testing.assert_allclose(values.values, best.values, atol=2e-6)
    return exact.on_policy(mdp, policy)


def assert_exact(page: Page, text: str, kind: str, discount: float) -> Distance:
    """Show a grid and compare all of its distances with `exact`."""
    mdp = worlds.grid(text, discount=discount)
    show_grid(page, text, kind, discount)
    d = compute_reference(page, mdp, kind)
    found = read_distances(page, mdp.num_states)
    assert np.abs(found - d.values).max() <= d.error + TOLERANCE
    return d


def cell_position(page: Page, row: int, column: int) -> Position:
    """Where on the map a cell is."""
    box = page.locator("svg.states-map").bounding_box()
    assert box is not None
    rows, columns = page.evaluate("[bisimetric.model.grid.rows, bisimetric.model.grid.columns]")
    return {
        "x": (column + 0.5) * box["width"] / columns,
        "y": (row + 0.5) * box["height"] / rows,
    }


def drag(page: Page, start: tuple[int, int], end: tuple[int, int]) -> None:
    box = page.locator("svg.states-map").bounding_box()
    assert box is not None
    places = [cell_position(page, *cell) for cell in (start, end)]
    (x, y), (u, v) = [(box["x"] + place["x"], box["y"] + place["y"]) for place in places]
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move((x + u) / 2, (y + v) / 2)
    page.mouse.move(u, v)
    page.mouse.up()


def read_cells(page: Page) -> str:
    return str(page.evaluate("bisimetric.model.grid.cells"))


@pytest.fixture
def page(show: Open) -> Page:
    page = show(explorer.render_playground())
    page.locator("svg.states-map").scroll_into_view_if_needed()
    return page


@pytest.mark.parametrize("kind", KINDS)
def test_distances_agree_with_exact(page: Page, kind: str) -> None:
    for text in (MIRRORED_ROOMS, REWARDS, "g", "gx", "   \n   "):
        for discount in (0.5, 0.9, 0.99):
            assert_exact(page, text, kind, discount)
    assert_exact(page, MIRRORED_ROOMS, kind, 0.0)


def test_painted_arrows_are_the_policy(page: Page) -> None:
    d = assert_exact(page, MIRRORED_ROOMS_POLICY, "on_policy", 0.9)
    expect(page.locator("#policy")).to_have_value("painted")
    expect(page.locator("#command")).to_have_text(
        re.compile(r"^bisimetric exact on-policy grid.txt --discount 0.9 --from \d,\d -o d.npz$")
    )
    expect(page.locator(".states-map .arrow")).to_have_count(d.mdp.num_states)
    page.locator("#policy").select_option("optimal")
    assert "^" not in read_cells(page)
    expect(page.locator("#command")).to_contain_text("--policy policy.txt")
    page.locator("#policy").select_option("painted")
    assert " " not in read_cells(page)


def test_every_preset_agrees_with_exact(page: Page) -> None:
    buttons = page.locator("button.preset")
    assert buttons.count() == 6
    texts = []
    for button in buttons.all():
        button.click()
        expect(button).to_have_attribute("aria-pressed", "true")
        expect(page.locator("#preset-note")).to_be_visible()
        text = page.locator("#grid-text").input_value()
        kind, discount = page.evaluate("[bisimetric.model.kind, bisimetric.model.discount]")
        assert_exact(page, text, kind, discount)
        texts.append(text)
    assert texts[2] == MIRRORED_ROOMS.strip("\n")
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    assert f"```text\n{texts[0]}\n```" in readme


def test_the_first_presets_are_about_symmetry(page: Page) -> None:
    assert (
        page.evaluate("bisimetric.distance.at(...bisimetric.explanationPanel.explained.slice(1))")
        == 0
    )
    expect(page.locator("#distance")).to_have_text("d_lax = 0")
    expect(page.locator(".explanation")).to_contain_text("No step distinguishes them.")
    page.get_by_role("button", name="two rooms, one more wall").click()
    expect(page.locator("#distance")).not_to_have_text("d_lax = 0")
    expect(page.locator("#facts")).to_contain_text("50 states50 classes")
    page.get_by_role("button", name="pessimism").click()
    expect(page.locator("#distance")).not_to_have_text("d~ = 0")
    page.locator("#distance-select").select_option("lax")
    expect(page.locator("#distance")).to_have_text("d_lax = 0")


def test_classes_are_those_of_relation_and_of_aggregation(page: Page) -> None:
    d = assert_exact(page, MIRRORED_ROOMS, "bisimulation", 0.9)
    page.locator("#view").select_option("classes")
    expect(page.locator("#classes")).to_have_text("31 classes of 31 states, at most 0 apart")
    for step in (5, 20, 29):
        page.locator("#threshold").fill(str(step))
        shown = [text.text_content() for text in page.locator(".states-map .numbers text").all()]
        threshold = page.evaluate("bisimetric.model.threshold")
        labels = uses.cluster(d.values, radius=threshold + d.error, rule="complete")
        assert shown == [str(label) for label in labels]


def test_a_stroke_paints_and_undo_takes_it_back(page: Page) -> None:
    before = read_cells(page)
    drag(page, (1, 2), (4, 2))
    painted = read_cells(page)
    assert [painted[13 * row + 2] for row in range(6)] == list("***** ")
    expect(page.locator("#facts")).to_contain_text("47 states")
    # A stroke that starts on a wall erases.
    drag(page, (2, 2), (3, 2))
    assert [read_cells(page)[13 * row + 2] for row in range(6)] == list("**  * ")
    page.locator("#undo").click()
    assert read_cells(page) == painted
    page.keyboard.press("Control+z")
    assert read_cells(page) == before
    expect(page.locator("#undo")).to_have_attribute("aria-disabled", "true")
    page.keyboard.press("Control+Shift+Z")
    assert read_cells(page) == painted
    expect(page.locator("#preset-note")).to_be_hidden()


@pytest.mark.parametrize(
    ("brush", "character"), [("goal", "g"), ("reward", "5"), ("trap", "x"), ("floor", " ")]
)
def test_brushes(page: Page, brush: str, character: str) -> None:
    page.get_by_role("radio", name=brush).click()
    page.locator("svg.states-map").click(position=cell_position(page, 2, 6))
    assert read_cells(page)[13 * 2 + 6] == character
    text = page.locator("#grid-text").input_value()
    assert_exact(page, text, "lax", 0.9)


def test_the_select_brush_selects_a_pair(page: Page) -> None:
    page.get_by_role("radio", name="select").click()
    for cell in ((1, 1), (5, 2)):
        page.locator("svg.states-map").click(position=cell_position(page, *cell))
    expect(page.locator(".chip.second")).to_have_text("5,2")
    d = exact.lax(worlds.grid(page.locator("#grid-text").input_value(), discount=0.9))
    expect(page.locator("#distance")).to_have_text(f"d_lax = {d('1,1', '5,2'):.6g}")
    assert len(page.locator("tr[data-step]").all()) > 0
    # A selected cell that becomes a wall is replaced by a neighbour.
    page.get_by_role("radio", name="wall").click()
    page.locator("svg.states-map").click(position=cell_position(page, 1, 1))
    assert page.evaluate("bisimetric.mdp.names[bisimetric.selection.first]") in ("1,2", "2,1")


def test_keys_paint_and_select(page: Page) -> None:
    page.locator("svg.states-map").focus()
    page.evaluate("bisimetric.map.moveCursor(13 + 1)")
    page.keyboard.press("ArrowRight")
    expect(page.locator("#announcement")).to_contain_text("1,2 floor, d_lax = ")
    for key, character in (("w", "*"), ("g", "g"), ("7", "7"), ("x", "x"), ("Space", " ")):
        page.keyboard.press(key)
        assert read_cells(page)[13 + 2] == character
    expect(page.locator("#announcement")).to_contain_text("1,2 floor. 51 states, 26 classes")
    page.keyboard.press("*")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.locator(".chip.first").last).to_have_text("2,2")
    expect(page.locator(".chip.second")).to_have_text("3,2")
    page.keyboard.press("Escape")
    expect(page.locator(".chip.second")).to_have_count(0)
    page.keyboard.press("Control+z")
    assert read_cells(page)[13 + 2] == " "
    expect(page.locator("svg.states-map")).to_be_focused()


def test_touch_paints(show: Open, page: Page) -> None:
    script = """([type, x, y]) => {
      const { left, top } = bisimetric.map.svg.getBoundingClientRect();
      bisimetric.map.svg.dispatchEvent(new PointerEvent(type, {
        pointerId: 1, pointerType: "touch", button: type === "pointermove" ? -1 : 0,
        clientX: left + x, clientY: top + y, bubbles: true }));
    }"""
    page.evaluate("bisimetric.map.svg.setPointerCapture = () => {}")
    for kind, cell in (("down", (2, 1)), ("move", (2, 4)), ("up", (2, 4))):
        place = cell_position(page, *cell)
        page.evaluate(script, [f"pointer{kind}", place["x"], place["y"]])
    assert read_cells(page)[13 * 2 : 13 * 3] == "***** *     *"
    style = "getComputedStyle(bisimetric.map.svg).touchAction"
    assert page.evaluate(style) == "none"
    page.get_by_role("radio", name="select").click()
    assert page.evaluate(style) == "manipulation"


def test_a_link_shows_the_same(page: Page) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    show_grid(page, REWARDS, "on_policy", 0.8)
    page.locator("#view").select_option("classes")
    page.locator("#threshold").fill("4")
    page.evaluate("bisimetric.selection.selectPair(3, 7)")
    classes = page.locator("#classes").text_content() or ""
    page.locator(".copy-link").click()
    expect(page.locator("#announcement")).to_have_text("link copied")
    link = page.evaluate("navigator.clipboard.readText()")
    page.goto("about:blank")
    page.goto(link)
    expect(page.locator("#classes")).to_have_text(classes)
    assert read_cells(page) == REWARDS.replace("\n", "")
    shown = page.evaluate(
        "[bisimetric.model.kind, bisimetric.model.discount, bisimetric.selection.first, "
        "bisimetric.selection.second]"
    )
    assert shown == ["on_policy", 0.8, 3, 7]


@pytest.mark.parametrize(
    "fragment", ["grid=***_**&discount=2&distance=x&states=99,1", "grid=%3Cb%3E", "states=1,"]
)
def test_an_invalid_link_is_ignored(page: Page, fragment: str) -> None:
    page.goto(f"{page.url.partition('#')[0]}?#{fragment}")
    expect(page.locator("#facts")).to_contain_text("51 states")
    assert page.evaluate("bisimetric.model.discount") == 0.9


def test_the_discount_is_dragged_and_typed(page: Page) -> None:
    page.locator("#discount").fill("0.5")
    mdp = worlds.grid(page.locator("#grid-text").input_value(), discount=0.5)
    expect(page.get_by_label("discount, as a number")).to_have_value("0.5")
    found = read_distances(page, mdp.num_states)
    assert np.abs(found - exact.lax(mdp).values).max() <= 1e-6
    page.get_by_label("discount, as a number").fill("0.995")
    assert page.evaluate("bisimetric.model.discount") == 0.995
    page.get_by_label("discount, as a number").fill("1")
    assert page.evaluate("bisimetric.model.discount") == 0.995
    expect(page.get_by_label("discount, as a number")).to_have_attribute("aria-invalid", "true")


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_worker_computes_large_grids(page: Page, kind: str) -> None:
    rng = np.random.default_rng(0)
    cells = rng.choice(list("* gx5"), size=(22, 22), p=[0.17, 0.79, 0.02, 0.01, 0.01])
    text = "\n".join("".join(row) for row in cells)
    d = assert_exact(page, text, kind, 0.9)
    assert 380 <= d.mdp.num_states <= 430
    assert page.evaluate("bisimetric.lastSolution.worker") is (
        kind != "on_policy" or d.mdp.num_states > 400
    )


def test_more_than_600_states_are_not_computed(page: Page) -> None:
    page.evaluate(SHOW, ["\n".join(["g" + " " * 29] * 21), "bisimulation", 0.9])
    expect(page.locator(".map-title")).to_contain_text(
        "630 states, and the page computes up to 600"
    )
    page.evaluate(SHOW, ["***", "bisimulation", 0.9])
    expect(page.locator(".map-title")).to_contain_text("walls only")
    assert_exact(page, " g", "bisimulation", 0.9)


def test_the_grid_is_saved_and_read_as_text(page: Page) -> None:
    with page.expect_download() as download:
        page.locator("[data-file='grid.txt']").click()
    saved = download.value.path().read_text(encoding="utf-8")
    assert worlds.grid(saved).num_states == 51
    page.locator("summary").click()
    page.locator("#grid-text").fill("*y*")
    page.get_by_role("button", name="use this text").click()
    expect(page.locator("#grid-error")).to_contain_text("column 2 is “y”")
    page.locator("#grid-text").fill("  g\n   ")
    page.get_by_role("button", name="use this text").click()
    expect(page.locator("#facts")).to_contain_text("6 states")
    expect(page.locator("#grid-error")).to_be_empty()


def test_a_saved_policy_proves_the_numbers(page: Page, tmp_path: Path) -> None:
    show_grid(page, REWARDS, "on_policy", 0.9)
    files = {}
    for name in ("grid.txt", "policy.txt"):
        with page.expect_download() as download:
            page.locator(f"[data-file='{name}']").click()
        download.value.save_as(tmp_path / name)
        files[name] = tmp_path / name
    mdp = worlds.load(files["grid.txt"], discount=0.9)
    d = exact.on_policy(mdp, np.loadtxt(files["policy.txt"], dtype=int))
    found = read_distances(page, mdp.num_states)
    assert np.abs(found - d.values).max() <= d.error + TOLERANCE


def test_the_size_changes(page: Page) -> None:
    page.get_by_label("rows", exact=True).fill("9")
    page.get_by_label("rows", exact=True).press("Enter")
    assert page.evaluate("bisimetric.model.grid.rows") == 9
    text = page.locator("#grid-text").input_value()
    assert text.splitlines()[-1] == "*" * 13
    assert_exact(page, text, "bisimulation", 0.9)
    page.locator("#undo").click()  # another distance
    page.locator("#undo").click()
    expect(page.get_by_label("rows", exact=True)).to_have_value("7")


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (390, True)])
def test_axe_finds_no_violation(show: Open, width: int, dark: bool) -> None:
    page = show(explorer.render_playground(), width=width, dark=dark, strict=False)
    for preset in ("two rooms", "mirrored rooms", "rewards and traps"):
        page.get_by_role("button", name=preset, exact=True).click()
        assert list_violations(page) == []
        assert_targets(page)
    page.locator("#view").select_option("classes")
    page.locator("summary").click()
    page.locator("#policy").select_option("painted")
    page.get_by_role("radio", name="reward").click()
    assert list_violations(page) == []
    assert_targets(page)
    overflow = "document.documentElement.scrollWidth <= window.innerWidth"
    assert page.evaluate(overflow)


def test_a_page_starts_from_a_given_grid(show: Open) -> None:
    page = show(explorer.render_playground("\n>g\n^<\n"))
    assert read_cells(page) == ">g^<"
    assert page.evaluate("bisimetric.model.kind") == "on_policy"
    policy: Any = page.evaluate("Array.from(bisimetric.distance.policy)")
    assert policy == [3, 1, 0, 2]
