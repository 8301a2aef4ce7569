"""A real browser: Debian's Chromium, driven by Playwright. Without one these tests are skipped."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Page,
    Request,
    sync_playwright,
)

from bisimetric import Distance, exact, explorer, planning, worlds

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
Open = Callable[..., Page]


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.skip("no Chromium is installed: `make test-browser` installs one and runs this")
    with sync_playwright() as playwright:
        # Chromium refuses to guard itself as root, as whom containers run.
        guard = ["--no-sandbox"] if os.geteuid() == 0 else []
        opened = playwright.chromium.launch(executable_path=found, args=guard)
        yield opened
        opened.close()


@pytest.fixture
def show(browser: Browser, tmp_path: Path) -> Iterator[Open]:
    """Opens a page; in the end no script may have failed, and nothing been asked of a network."""
    wrong: list[str] = []
    contexts: list[BrowserContext] = []

    def asked(request: Request) -> None:
        if not request.url.startswith(("file:", "data:", "about:")):
            wrong.append(f"asked for {request.url}")

    def said(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            wrong.append(f"{message.type}: {message.text}")

    def opened(text: str, *, width: int = 1280, dark: bool = False, strict: bool = True) -> Page:
        path = tmp_path / f"page{len(contexts)}.html"
        path.write_text(text, encoding="utf-8")
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme="dark" if dark else "light"
        )
        contexts.append(context)
        page = context.new_page()
        page.on("request", asked)
        if strict:
            page.on("console", said)
        page.on("pageerror", lambda error: wrong.append(f"failed: {error}"))
        page.goto(path.as_uri())
        return page

    yield opened
    for context in contexts:
        context.close()
    assert not wrong


@pytest.fixture(scope="session")
def rooms() -> Distance:
    return exact.bisimulation(worlds.load("mirrored-rooms", discount=0.9))


@pytest.fixture(scope="session")
def several(rooms: Distance) -> dict[str, Distance]:
    mdp = rooms.mdp
    return {
        "d~": rooms,
        "d^pi": exact.on_policy(mdp, planning.greedy_policy(mdp)),
        "lax": exact.lax(mdp),
    }


@pytest.fixture(scope="session")
def compared(several: dict[str, Distance]) -> str:
    return explorer.build_page(several, title="two rooms").html
