"""The page of an episode in a real browser: dragged, pointed at, by keys."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from playwright.sync_api import Page, expect

from bisimetric import explorer

Open = Callable[..., Page]


def build_path() -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    return np.cumsum(np.random.default_rng(1).normal(size=(90, 2)), axis=0)


def render_episode_page() -> tuple[str, np.ndarray[tuple[int, ...], np.dtype[np.float64]]]:
    rng = np.random.default_rng(0)
    frames = rng.integers(0, 256, (90, 8, 6), dtype=np.uint8)
    places = build_path()
    far = np.linalg.norm(places[:, None] - places[None], axis=-1)
    marks = {30: "<b>point</b>", 52: "life lost"}
    return explorer.render_episode(
        frames, far, values=places[:, 0], events=marks, title="A game"
    ), far


def test_an_episode_is_dragged_through(show: Open) -> None:
    text, far = render_episode_page()
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
    pointed = int(page.locator("#compared").input_value())
    shown = (page.locator("#frame-distance").text_content() or "").split()[-1]
    assert float(shown) == pytest.approx(far[source, pointed], abs=0.01)
    thumbs = page.locator("#nearest button")
    expect(thumbs).to_have_count(6)
    away = np.abs(np.arange(90) - source) >= 3
    best = int(np.where(away, far[source], np.inf).argmin())
    expect(thumbs.first.locator("span").first).to_have_text(f"frame {best}")
    furthest = page.locator("#furthest button").first.locator("span").first
    expect(furthest).to_have_text(f"frame {far[source].argmax()}")
    thumbs.first.click()
    expect(page.locator("#source")).to_have_value(str(best))


def test_an_episode_by_keyboard_and_on_a_phone(show: Open) -> None:
    page = show(render_episode_page()[0], width=390, dark=True)
    page.locator("#source").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    expect(page.locator(".screen.source")).to_contain_text("source frame 2")
    over = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert page.evaluate(over) <= 0


def test_events_are_shown_by_pointer_and_keyboard(show: Open) -> None:
    page = show(render_episode_page()[0])
    caption = page.locator(".screen").nth(1)
    diamond = page.locator("#curve svg").first.locator("[data-part=dot] path").nth(1).bounding_box()
    assert diamond is not None
    # Beside the mark by a few pixels, at the height of the curve.
    page.mouse.move(diamond["x"] + diamond["width"] / 2 + 3, diamond["y"] + 90)
    expect(caption).to_contain_text("frame 52")
    expect(caption).to_contain_text("life lost")
    expect(page.locator("#compared")).to_have_attribute(
        "aria-valuetext", f"frame 52, value {build_path()[52, 0]:.3g}, life lost"
    )
    events = page.locator("#events button")
    assert events.all_text_contents() == ["30 <b>point</b>", "52 life lost"]
    expect(events.nth(1)).to_have_attribute("aria-pressed", "true")
    events.first.focus()
    page.keyboard.press("Enter")
    expect(caption).to_contain_text("frame 30")
    expect(caption).to_contain_text("<b>point</b>")


def test_a_thumbnail_is_shown_beside_the_source(show: Open) -> None:
    text, far = render_episode_page()
    page = show(text)
    thumb = page.locator("#nearest button").nth(2)
    frame = int((thumb.locator("span").first.text_content() or "").split()[-1])
    thumb.hover()
    expect(page.locator(".screen").nth(1)).to_contain_text(f"frame {frame}")
    expect(page.locator("#frame-distance")).to_contain_text(f"{far[0, frame]:.2f}")
    expect(page.locator("#source")).to_have_value("0")
    page.mouse.move(2, 2)
    page.locator("#furthest button").first.focus()
    furthest = int(far[0].argmax())
    expect(page.locator("#compared")).to_have_value(str(furthest))


def test_the_axis_fits_the_distances_and_the_source_can_be_set(show: Open) -> None:
    apart = 5 + np.abs(np.subtract.outer(np.arange(60.0), np.arange(60.0))) / 60
    np.fill_diagonal(apart, 0.0)
    frames = np.zeros((60, 4, 4), np.uint8)
    page = show(explorer.render_episode(frames, apart, times=range(0, 120, 2), source=41))
    expect(page.locator(".screen.source")).to_contain_text("source frame 40")
    ticks = page.locator("#curve [data-part='y-axis tick label'] text")
    assert float(ticks.first.text_content() or "nan") == 0
    page.locator("#fit-axis").check()
    assert float(ticks.first.text_content() or "nan") >= 5
