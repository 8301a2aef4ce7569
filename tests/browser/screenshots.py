"""The pictures of docs/explorer.md: `python tests/browser/screenshots.py docs/explorer`."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import numpy as np
from playwright.sync_api import Browser, Page, sync_playwright

from bisimetric import exact, explorer, planning, worlds

VIEWS = """
distances  1280 light
compare    1280 light
values     1280 dark
groups     1280 dark
telephone   390 dark
coupling   1280 light
points     1280 dark
episode    1280 light
notebook   1000 light
"""


def pages() -> dict[str, str]:
    mdp = worlds.load("mirrored-rooms", discount=0.9)
    d = exact.bisimulation(mdp)
    policy = planning.greedy_policy(mdp)
    rooms = explorer.made(
        {"d~": d, "d_lax": exact.lax(mdp), "d^π": exact.on_policy(mdp, policy)},
        title="mirrored-rooms",
    ).text
    lake = exact.bisimulation(worlds.load("FrozenLake-v1"))
    random = exact.bisimulation(worlds.load("random", states=150, successors=2, discount=0.9))
    head = "<!doctype html><meta charset=utf-8><title>notebook</title><pre>In [1]: d</pre>"
    return {
        **dict.fromkeys(("distances", "compare", "values", "groups", "telephone"), rooms),
        "coupling": explorer.page(lake, title="FrozenLake-v1, slippery"),
        "points": explorer.page(random, title="random, 150 states"),
        "episode": episode(),
        "notebook": head + explorer.small(d),
    }


def episode() -> str:
    """A made-up game: a ball, and a paddle below it."""
    t = np.arange(300)
    x, y = (80 + 60 * np.sin(t / 17)).astype(int), (110 + 75 * np.cos(t / 31)).astype(int)
    frames = np.full((len(t), 210, 160), 1, np.uint8)
    frames[:, :20] = 2
    for i in range(len(t)):
        frames[i, y[i] - 5 : y[i] + 5, x[i] - 5 : x[i] + 5] = 3
        frames[i, 196:201, x[i] - 12 : x[i] + 12] = 4
    palette = [[0, 0, 0], [20, 40, 90], [120, 120, 120], [240, 200, 60], [220, 80, 80]]
    points = np.stack([x, y], axis=1).astype(float)
    far = np.linalg.norm(points[:, None] - points[None], axis=-1)
    marks = {60: "point", 170: "life lost"}
    return explorer.episode(
        frames,
        far,
        palette=np.array(palette, np.uint8),
        values=np.sin(t / 40),
        marks=marks,
        title="A made-up game",
    )


def prepare(page: Page, name: str) -> None:
    """Picks what the picture shows."""
    if name in ("compare", "values", "groups"):
        page.evaluate("bisimetric.selection.choose(15, 3)")
        page.locator(f"#tab-{name}").click()
        if name == "compare":
            page.locator("#choose-other").select_option("1")
        if name == "groups":
            page.locator("#table").select_option("1")
            page.locator("#threshold").fill("8")
    elif name == "episode":
        page.locator("#source").fill("70")
        page.locator("#pointed").fill("140")
    elif name == "notebook":
        frame = page.frame_locator("iframe")
        frame.locator('[data-state="15"]').click()
        frame.locator('[data-state="3"]').click()
        frame.locator(".why h2").hover()
    else:
        first, second = {"coupling": (0, 9), "points": (12, 25)}.get(name, (4, 20))
        page.evaluate(f"bisimetric.selection.choose({first}, {second})")


def taken(browser: Browser, name: str, text: str, width: int, scheme: str, folder: Path) -> None:
    height = 560 if name == "notebook" else 860
    page = browser.new_page(
        viewport={"width": width, "height": height},
        color_scheme="dark" if scheme == "dark" else "light",
    )
    page.set_content(text)
    prepare(page, name)
    page.screenshot(path=folder / f"{name}.png", full_page=name != "notebook")
    page.close()


def main(folder: Path) -> None:
    texts = pages()
    with sync_playwright() as playwright:
        guard = ["--no-sandbox"] if os.geteuid() == 0 else []
        path = shutil.which("chromium")
        browser = playwright.chromium.launch(executable_path=path, args=guard)
        for name, width, scheme in (line.split() for line in VIEWS.strip().splitlines()):
            taken(browser, name, texts[name], int(width), scheme, folder)
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
