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
        # Chromium has no sandbox as root, the user of containers.
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=found, args=arguments)
        yield browser
        browser.close()


@pytest.fixture
def show(browser: Browser, tmp_path: Path) -> Iterator[Open]:
    """Open pages; scripts that fail and requests to a network fail the test."""
    failures: list[str] = []
    contexts: list[BrowserContext] = []

    def record_request(request: Request) -> None:
        if not request.url.startswith(("file:", "data:", "about:", "blob:")):
            failures.append(f"asked for {request.url}")

    def record_message(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            failures.append(f"{message.type}: {message.text}")

    def open_page(
        text: str,
        *,
        width: int = 1280,
        dark: bool = False,
        strict: bool = True,
        fragment: str = "#view=distances",  # a link, so that no guide is shown
    ) -> Page:
        path = tmp_path / f"page{len(contexts)}.html"
        path.write_text(text, encoding="utf-8")
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme="dark" if dark else "light"
        )
        contexts.append(context)
        page = context.new_page()
        page.on("request", record_request)
        if strict:
            page.on("console", record_message)
        page.on("pageerror", lambda error: failures.append(f"failed: {error}"))
        page.goto(path.as_uri() + fragment)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not failures


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
def comparison_page(several: dict[str, Distance]) -> str:
    files = {name: f"{name}.npz" for name in several}
    return explorer.build_page(several, title="two rooms", files=files).html
