"""Pages of odd input and of notebooks, in a real browser."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from playwright.sync_api import Page, expect

from bisimetric import MDP, Distance, datasets, exact, explorer, sampled, worlds
from tests.browser.states import click, hover

Open = Callable[..., Page]
HOSTILE = (
    "</script><script>window.bad = 1</script>",
    "<img src=x onerror='window.bad = 1'>",
    "<script>window.bad = 1</script>",
    "\"'&amp;{{data}}`${window.bad = 1}",
    "🙂 emoji \u2028 line",
)


def build_ring(names: tuple[str, ...]) -> Distance:
    count = len(names)
    ring = (np.arange(count) + 1) % count
    rewards = np.arange(count, dtype=float)[:, None]
    actions = ("<b>go</b>",)
    mdp = MDP.deterministic(ring[:, None], rewards, discount=0.5, names=names, actions=actions)
    return exact.bisimulation(mdp)


def test_names_are_shown_and_never_executed(show: Open) -> None:
    page = show(
        explorer.build_page({"<i>d</i>": build_ring(HOSTILE), "e": build_ring(HOSTILE)}).html
    )
    for s, name in enumerate(HOSTILE):
        page.evaluate(f"bisimetric.selection.selectPair({s}, {(s + 1) % len(HOSTILE)})")
        assert page.locator(".explanation .chip.first").text_content() == name
        hover(page, s)
        assert name in (page.locator("#tooltip").text_content() or "")
    expect(page.locator("table.steps").first).to_contain_text("<b>go</b>")
    for view in ("compare", "values", "classes"):
        page.locator(f"#tab-{view}").click()
    assert "<i>d</i>" in (page.locator("#view-compare").text_content() or "")
    assert page.evaluate("window.bad") is None
    assert page.locator("main img, main b, main i:not([class]):not([style])").count() == 0


def test_an_injected_script_does_not_run(show: Open) -> None:
    text = explorer.render_page(build_ring(("a", "b")))
    traps = "<p onclick='window.bad = 1' id=trap>x</p><script>window.bad = 1</script>"
    page = show(text.replace("</body>", f"{traps}</body>"), strict=False)
    page.evaluate("document.getElementById('trap').click()")
    assert page.evaluate("window.bad") is None
    # The same on a page that allows it, so that the traps are known to work.
    page = show(f"<!doctype html><title>x</title>{traps}")
    assert page.evaluate("window.bad") == 1


def test_a_page_of_one_state(show: Open) -> None:
    page = show(
        explorer.render_page(exact.bisimulation(MDP.deterministic([[0]], [[1]], discount=0.5)))
    )
    expect(page.locator(".explanation")).to_contain_text("There is no other state")
    for view in ("values", "classes", "distances"):
        page.locator(f"#tab-{view}").click()
    click(page, 0)
    click(page, 0)
    expect(page.locator(".explanation")).to_contain_text("They are the same state.")
    expect(page.locator("#view-values")).to_contain_text("There is no pair of states")
    expect(page.locator("main svg:not(.states-map)")).to_have_count(0)


def test_regrets_that_are_all_0_have_a_whole_axis(show: Open) -> None:
    page = show(
        explorer.render_page(
            exact.bisimulation(MDP.deterministic([[0], [0]], [[1], [0]], discount=0.5))
        )
    )
    page.locator("#tab-classes").click()
    ticks = page.locator("#view-classes [data-part='y-axis tick label'] text").all_text_contents()
    assert ticks[0] in ("0", "0.0")
    assert float(ticks[-1]) == 1
    classes = page.locator("#view-classes [data-part='x-axis tick label'] text")
    assert classes.all_text_contents() == ["1", "2"]


def test_zero_is_written_as_0(show: Open) -> None:
    mdp = MDP.deterministic([[1], [2], [0]], [[0], [0], [0]], discount=0.9)
    page = show(explorer.render_page(exact.bisimulation(mdp)))
    page.evaluate("bisimetric.selection.selectPair(0, 1)")
    expect(page.locator(".explanation")).to_contain_text("No step distinguishes them")
    expect(page.locator(".explanation")).to_contain_text("differ by 0, at most 0 by this distance")
    for view in ("values", "classes"):
        page.locator(f"#tab-{view}").click()
    assert "e-3" not in (page.locator("main").text_content() or "")


def test_a_matrix_without_an_mdp(show: Open) -> None:
    line = np.abs(np.subtract.outer(np.arange(6.0), np.arange(6.0)))
    page = show(explorer.render_page(line))
    click(page, 0)
    click(page, 5)
    expect(page.locator("#distance")).to_have_text("d = 5")
    expect(page.locator(".explanation")).to_contain_text("has no transitions to explain it")
    page.locator("#tab-values").click()
    expect(page.locator("#view-values")).to_contain_text("has no values")
    page.locator("#tab-classes").click()
    expect(page.locator("#regret")).to_have_text("unknown")
    page.locator("#tab-distances").click()
    page.locator("#view-distances svg.states-map").focus()
    page.keyboard.press("Escape")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowLeft")
    expect(page.locator("#announcement")).not_to_be_empty()


def test_lower_bounds_and_unknown_states_are_marked(show: Open) -> None:
    lake = datasets.rollout("FrozenLake-v1", steps=40, seed=0, is_slippery=False)
    d = sampled.bisimulation(lake, seed=0)
    coverage = d.coverage
    assert coverage is not None
    assert not coverage.complete
    page = show(explorer.render_page(d))
    below = np.argwhere(~coverage.determined & np.outer(coverage.visited, coverage.visited))
    s, t = below[0].tolist()
    page.evaluate(f"bisimetric.selection.selectPair({s}, {t})")
    expect(page.locator("#distance")).to_contain_text("≥")
    expect(page.locator(".explanation")).to_contain_text("lower bound")
    dead = int(np.flatnonzero(~coverage.visited)[0])
    page.evaluate(f"bisimetric.selection.selectPair({s}, {dead})")
    expect(page.locator("#distance")).to_have_text("unknown")
    assert (
        page.locator("#view-distances .unknown [data-state]").count() == (~coverage.visited).sum()
    )
    page.locator("#tab-values").click()
    expect(page.locator("#view-values")).to_contain_text(
        "Not all transitions of this MDP were observed"
    )


def test_a_notebook_shows_a_map_that_can_be_clicked(show: Open) -> None:
    d, odd = exact.bisimulation(worlds.load("mirrored-rooms", discount=0.9)), build_ring(HOSTILE)
    page = show(f"<!doctype html><meta charset=utf-8><title>x</title>{d._repr_html_()}")
    frame = page.frames[1]
    click(frame, 3)
    click(frame, 9)
    expect(frame.locator("#distance")).to_have_text(f"d~ = {d(3, 9):.6g}")
    expect(frame.locator("table.steps tbody tr").first).to_be_visible()
    page = show(
        f"<!doctype html><meta charset=utf-8><title>x</title>{explorer.render_notebook(odd)}"
    )
    chip = page.frame_locator("iframe").locator(".explanation .chip.first")
    assert chip.text_content() == HOSTILE[0]
