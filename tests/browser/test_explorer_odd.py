"""Pages of odd input, of notebooks and of episodes, in a real browser."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from playwright.sync_api import Page, expect

from bisimetric import MDP, Distance, datasets, exact, explorer, sampled, worlds

Open = Callable[..., Page]
HOSTILE = (
    "</script><script>window.bad = 1</script>",
    "<img src=x onerror='window.bad = 1'>",
    "<script>window.bad = 1</script>",
    "\"'&amp;{{data}}`${window.bad = 1}",
    "🙂 emoji \u2028 line",
)


def named(names: tuple[str, ...]) -> Distance:
    count = len(names)
    ring = (np.arange(count) + 1) % count
    rewards = np.arange(count, dtype=float)[:, None]
    actions = ("<b>go</b>",)
    mdp = MDP.deterministic(ring[:, None], rewards, discount=0.5, names=names, actions=actions)
    return exact.bisimulation(mdp)


def test_names_are_shown_and_never_run(show: Open) -> None:
    page = show(explorer.made({"<i>d</i>": named(HOSTILE), "e": named(HOSTILE)}).text)
    for s, name in enumerate(HOSTILE):
        page.evaluate(f"bisimetric.selection.choose({s}, {(s + 1) % len(HOSTILE)})")
        assert page.locator(".why .chip.first").text_content() == name
        page.locator(f'#view-distances [data-state="{s}"]').hover(force=True)
        assert name in (page.locator("#tip").text_content() or "")
    expect(page.locator("table.steps").first).to_contain_text("<b>go</b>")
    for view in ("compare", "values", "groups"):
        page.locator(f"#tab-{view}").click()
    assert "<i>d</i>" in (page.locator("#view-compare").text_content() or "")
    assert page.evaluate("window.bad") is None
    assert page.locator("main img, main b, main i:not([class]):not([style])").count() == 0


def test_a_script_that_got_in_would_not_run(show: Open) -> None:
    text = explorer.page(named(("a", "b")))
    traps = "<p onclick='window.bad = 1' id=trap>x</p><script>window.bad = 1</script>"
    page = show(text.replace("</body>", f"{traps}</body>"), strict=False)
    page.evaluate("document.getElementById('trap').click()")
    assert page.evaluate("window.bad") is None
    # The same on a page that allows it, so that the traps are known to work.
    page = show(f"<!doctype html><title>x</title>{traps}")
    assert page.evaluate("window.bad") == 1


def test_a_page_of_one_state(show: Open) -> None:
    page = show(explorer.page(exact.bisimulation(MDP.deterministic([[0]], [[1]], discount=0.5))))
    expect(page.locator(".why")).to_contain_text("There is no other state")
    for view in ("values", "groups", "distances"):
        page.locator(f"#tab-{view}").click()
    page.locator('#view-distances [data-state="0"]').click()
    page.locator('#view-distances [data-state="0"]').click()
    expect(page.locator(".why")).to_contain_text("They are the same state.")


def test_a_table_without_a_world(show: Open) -> None:
    line = np.abs(np.subtract.outer(np.arange(6.0), np.arange(6.0)))
    page = show(explorer.page(line))
    expect(page.locator("#view-distances circle[data-state]")).to_have_count(6)
    page.locator('#view-distances [data-state="0"]').click()
    page.locator('#view-distances [data-state="5"]').click()
    expect(page.locator("#distance")).to_have_text("d = 5")
    expect(page.locator(".why")).to_contain_text("has no steps to show")
    page.locator("#tab-values").click()
    expect(page.locator("#view-values")).to_contain_text("has no values")
    page.locator("#tab-groups").click()
    expect(page.locator("#loss")).to_have_text("not measured")
    page.locator("#tab-distances").click()
    page.locator("#view-distances svg.states-map").focus()
    page.keyboard.press("Escape")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowLeft")
    expect(page.locator("#said")).not_to_be_empty()


def test_lower_bounds_and_unknown_states_are_said(show: Open) -> None:
    lake = datasets.rollout("FrozenLake-v1", steps=40, key=0, is_slippery=False)
    d = sampled.bisimulation(lake, key=0)
    coverage = d.coverage
    assert coverage is not None
    assert not coverage.complete
    page = show(explorer.page(d))
    below = np.argwhere(~coverage.determined & np.outer(coverage.lived, coverage.lived))
    s, t = below[0].tolist()
    page.evaluate(f"bisimetric.selection.choose({s}, {t})")
    expect(page.locator("#distance")).to_contain_text("≥")
    expect(page.locator(".why")).to_contain_text("lower bound")
    dead = int(np.flatnonzero(~coverage.lived)[0])
    page.evaluate(f"bisimetric.selection.choose({s}, {dead})")
    expect(page.locator("#distance")).to_have_text("not known")
    assert page.locator("#view-distances .veil[data-state]").count() == (~coverage.lived).sum()
    page.locator("#tab-values").click()
    expect(page.locator("#view-values")).to_contain_text("Not all steps of this world were seen")


def test_a_notebook_shows_a_map_that_can_be_clicked(show: Open) -> None:
    d, odd = exact.bisimulation(worlds.load("mirrored-rooms", discount=0.9)), named(HOSTILE)
    page = show(f"<!doctype html><meta charset=utf-8><title>x</title>{d._repr_html_()}")
    frame = page.frame_locator("iframe")
    frame.locator('[data-state="3"]').click()
    frame.locator('[data-state="9"]').click()
    expect(frame.locator("#distance")).to_have_text(f"d~ = {d(3, 9):.6g}")
    expect(frame.locator("table.steps tbody tr").first).to_be_visible()
    page = show(f"<!doctype html><meta charset=utf-8><title>x</title>{explorer.small(odd)}")
    chip = page.frame_locator("iframe").locator(".why .chip.first")
    assert chip.text_content() == HOSTILE[0]


def episode() -> tuple[str, np.ndarray[tuple[int, ...], np.dtype[np.float64]]]:
    rng = np.random.default_rng(0)
    frames = rng.integers(0, 256, (90, 8, 6), dtype=np.uint8)
    path = np.cumsum(rng.normal(size=(90, 2)), axis=0)
    far = np.linalg.norm(path[:, None] - path[None], axis=-1)
    marks = {30: "<b>point</b>"}
    return explorer.episode(frames, far, values=path[:, 0], marks=marks, title="A game"), far


def test_an_episode_is_dragged_through(show: Open) -> None:
    text, far = episode()
    page = show(text)
    expect(page.locator("#curve svg").first).to_be_visible()
    box = page.locator("#curve svg").first.bounding_box()
    assert box is not None
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + 0.6 * box["width"], middle)
    expect(page.locator(".screen").nth(1)).to_contain_text("frame 5")
    page.mouse.move(box["x"] + 0.2 * box["width"], middle)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.5 * box["width"], middle, steps=4)
    page.mouse.up()
    source = int(page.locator("#source").input_value())
    assert 35 < source < 50
    expect(page.locator(".screen.source")).to_contain_text(f"source frame {source}")
    pointed = int(page.locator("#pointed").input_value())
    shown = (page.locator("#apart").text_content() or "").split()[-1]
    assert float(shown) == pytest.approx(far[source, pointed], abs=0.01)
    thumbs = page.locator("#nearest button")
    expect(thumbs).to_have_count(6)
    away = np.abs(np.arange(90) - source) >= 3
    best = int(np.where(away, far[source], np.inf).argmin())
    expect(thumbs.first.locator("span").first).to_have_text(str(best))
    furthest = page.locator("#furthest button").first.locator("span").first
    expect(furthest).to_have_text(str(int(far[source].argmax())))
    thumbs.first.click()
    expect(page.locator("#source")).to_have_value(str(best))


def test_an_episode_by_keys_and_on_a_telephone(show: Open) -> None:
    page = show(episode()[0], width=390, dark=True)
    page.locator("#source").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    expect(page.locator(".screen.source")).to_contain_text("source frame 2")
    over = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert page.evaluate(over) <= 0
