"""States on the maps of a page: pointed at and clicked as a hand would."""

from __future__ import annotations

from typing import Any

from playwright.sync_api import Frame, Page

PLACE = """([view, state]) => {
  const shown = bisimetric.views.get(view);
  const map = shown.map ?? shown.cards[0].map;
  const [x, y] = map.centre(state);
  const { left, top } = map.svg.getBoundingClientRect();
  return { x: x - left, y: y - top };
}"""


def _on_map(page: Page | Frame, s: int, view: str) -> tuple[Any, Any]:
    """A map, and where on it a state is."""
    inside = f"#view-{view} " if isinstance(page, Page) else ""
    return page.locator(f"{inside}svg.states-map").first, page.evaluate(PLACE, [view, s])


def click(page: Page | Frame, s: int, view: str = "distances") -> None:
    """Clicks a state; a page in a frame has one map, without a view around it."""
    found, place = _on_map(page, s, view)
    found.click(position=place)


def hover(page: Page | Frame, s: int, view: str = "distances") -> None:
    """Points at a state."""
    found, place = _on_map(page, s, view)
    found.hover(position=place)
