"""The pictures of docs/how-to/explorer.md: `python tests/browser/screenshots.py FOLDER`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

from bisimetric import exact, explorer, planning, worlds

VIEWS = """
distances  1280 light
guide      1280 dark
compare    1280 light
values     1280 dark
classes    1280 dark
phone       390 dark
coupling   1280 light
points     1280 dark
episode    1280 light
notebook   1000 light
"""


def render_pages() -> dict[str, str]:
    mdp = worlds.load("mirrored-rooms", discount=0.9)
    d = exact.bisimulation(mdp)
    policy = planning.greedy_policy(mdp)
    rooms = explorer.build_page(
        {"d~": d, "d_lax": exact.lax(mdp), "d^π": exact.on_policy(mdp, policy)},
        title="mirrored-rooms",
        files={"d~": "d.npz", "d_lax": "lax.npz", "d^π": "policy.npz"},
    ).html
    lake = exact.bisimulation(worlds.load("FrozenLake-v1"))
    random = exact.bisimulation(worlds.load("random", states=150, successors=2, discount=0.9))
    head = "<!doctype html><meta charset=utf-8><title>notebook</title><pre>In [1]: d</pre>"
    return {
        **dict.fromkeys(("distances", "guide", "compare", "values", "classes", "phone"), rooms),
        "coupling": explorer.render_page(lake, title="FrozenLake-v1, slippery"),
        "points": explorer.render_page(random, title="random, 150 states"),
        "episode": render_asterix(),
        "notebook": head + explorer.render_notebook(d),
    }


def render_asterix() -> str:
    """Frames of Asterix, as `bisimetric atari show` writes them (needs bisimetric-atari)."""
    with tempfile.TemporaryDirectory() as folder:
        words = f"atari show Asterix --steps 1400 --no-videos -o {folder}".split()
        subprocess.run([sys.executable, "-m", "bisimetric", *words], check=True)
        return (Path(folder) / "explore.html").read_text(encoding="utf-8")


def prepare(page: Page, name: str) -> None:
    """Select what the screenshot shows."""
    if name in ("compare", "values", "classes"):
        page.evaluate("bisimetric.selection.selectPair(15, 3)")
        page.locator(f"#tab-{name}").click()
        if name == "compare":
            page.locator("#select-comparison").select_option("1")
        if name == "classes":
            page.locator("#distance-select").select_option("1")
            page.locator("#threshold").fill("8")
    elif name == "episode":
        # Places among the 600 frames that are shown of 1,400.
        page.locator("#source").fill("86")
        page.locator("#events button", has_text="life lost").first.click()
        page.locator("#fit-axis").check()
        page.locator("h1").click()
    elif name == "guide":
        page.get_by_role("button", name="next").click()
    elif name == "notebook":
        page.frames[1].evaluate("bisimetric.selection.selectPair(15, 3)")
    else:
        first, second = {"coupling": (0, 9), "points": (12, 25)}.get(name, (4, 20))
        page.evaluate(f"bisimetric.selection.selectPair({first}, {second})")


def take_screenshot(
    browser: Browser, name: str, text: str, width: int, scheme: str, folder: Path
) -> None:
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
    texts = render_pages()
    with sync_playwright() as playwright:
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        path = shutil.which("chromium")
        browser = playwright.chromium.launch(executable_path=path, args=arguments)
        for name, width, scheme in (line.split() for line in VIEWS.strip().splitlines()):
            take_screenshot(browser, name, texts[name], int(width), scheme, folder)
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
