"""What a page saves and copies: pictures of maps, tables, and a command that runs."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageColor
from playwright.sync_api import Page, expect

from bisimetric import MDP, Distance, exact, explorer
from tests.browser.states import click
from tests.commands import Run

Open = Callable[..., Page]
SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = ("<script>alert(1)</script>", 'a \x07 & "b"', "it's; $(touch gone)", "-x", "0")


def save(page: Page, words: str) -> tuple[str, bytes]:
    """Save by the menu; the name and the content of the file."""
    page.locator("summary").click()
    with page.expect_download() as download:
        page.get_by_role("button", name=words).click()
    assert not page.locator(".menu-items").is_visible()
    name = download.value.suggested_filename
    expect(page.locator("#announcement")).to_have_text(f"saved {name}")
    expect(page.locator("summary")).to_have_text("✓ saved")
    return name, Path(download.value.path()).read_bytes()


def build_hostile() -> Distance:
    rng = np.random.default_rng(0)
    count = len(HOSTILE)
    mdp = MDP(
        np.eye(count)[rng.integers(count, size=(count, 2))],
        rng.random((count, 2)),
        discount=0.9,
        names=HOSTILE,
    )
    return exact.bisimulation(mdp)


@pytest.mark.parametrize("dark", [False, True])
def test_a_map_is_saved_as_svg_and_png(show: Open, comparison_page: str, dark: bool) -> None:
    page = show(comparison_page, dark=dark)
    click(page, 4)
    click(page, 20)
    name, text = save(page, "map as SVG")
    assert name == "two-rooms-map.svg"
    root = ElementTree.fromstring(text)
    titles = [each.text for each in root.iter(f"{SVG}title")]
    assert titles == ["bisimulation distance from 1,5"]
    colours = page.evaluate("bisimetric.views.get('distances').map.lastPaint[0]")
    cells = [each for each in root.iter(f"{SVG}rect") if each.get("stroke-opacity")]
    cells = [each for each in cells if each.get("fill") != "none"]
    assert [each.get("fill") for each in cells] == colours
    # Nothing depends on the styles of the page, nor on anything outside of the file.
    assert b"class=" not in text
    assert b"var(" not in text
    assert b"http" not in text.replace(b"http://www.w3.org/2000/svg", b"")
    name, picture = save(page, "map as PNG")
    assert name == "two-rooms-map.png"
    image = Image.open(io.BytesIO(picture)).convert("RGB")
    assert image.size == tuple(
        round(2 * float(root.get(side) or 0)) for side in ("width", "height")
    )
    # The colours of the map, in a corner of their cells.
    place = re.search(r'"translate\((\S+) (\S+)\) scale\((\S+)\)"', text.decode())
    assert place is not None
    left, top, zoom = map(float, place.groups())
    for s in (0, 7, 30):
        x, y = (zoom * (float(cells[s].get(side) or 0) + 0.12) for side in ("x", "y"))
        found = image.getpixel((round(2 * (24 + left + x)), round(2 * (top + y))))
        assert found == ImageColor.getrgb(colours[s])


def test_the_maps_of_other_tabs_are_saved(show: Open, comparison_page: str) -> None:
    page = show(comparison_page)
    page.locator("#tab-compare").click()
    root = ElementTree.fromstring(save(page, "map as SVG")[1])
    assert len(list(root.iter(f"{SVG}linearGradient"))) == 3
    page.locator("#tab-classes").click()
    root = ElementTree.fromstring(save(page, "map as SVG")[1])
    assert "classes" in (root.findtext(f"{SVG}title") or "")
    page.locator("#tab-values").click()
    page.locator("summary").click()
    expect(page.get_by_role("button", name="map as SVG")).to_be_disabled()
    page.keyboard.press("Escape")
    assert not page.locator(".menu-items").is_visible()
    for leave in (page.locator("h1").click, page.locator("#find-state").focus):
        page.locator("summary").click()
        expect(page.locator(".menu-items")).to_be_visible()
        leave()
        assert not page.locator(".menu-items").is_visible()


def test_points_and_hostile_names_are_saved(show: Open) -> None:
    page = show(explorer.render_page(build_hostile(), title="../<b>"))
    click(page, 1)
    name, text = save(page, "map as SVG")
    assert name == "b-map.svg"
    root = ElementTree.fromstring(text)
    assert len([each for each in root.iter(f"{SVG}circle") if each.get("fill")]) >= len(HOSTILE)
    assert not list(root.iter(f"{SVG}script"))
    assert save(page, "map as PNG")[1].startswith(b"\x89PNG")
    rows = list(csv.reader(io.StringIO(save(page, "all pairs")[1].decode(), newline="")))
    assert [row[:2] for row in rows[1:]] == [
        [HOSTILE[s], HOSTILE[t]] for s in range(5) for t in range(s + 1, 5)
    ]


def test_tables_have_the_distances_with_all_digits(
    show: Open, several: dict[str, Distance], comparison_page: str
) -> None:
    page = show(comparison_page)
    click(page, 4)
    mdp = next(iter(several.values())).mdp
    names = [mdp.state_name(s) for s in range(mdp.num_states)]
    name, text = save(page, "distances from the selected state")
    assert name == "two-rooms-from-1-5.csv"
    head, *rows = csv.reader(io.StringIO(text.decode(), newline=""))
    assert head == ["from", "to", *several]
    assert [row[:2] for row in rows] == [["1,5", to] for to in names]
    for column, d in enumerate(several.values(), start=2):
        assert [float(row[column]) for row in rows] == d.values[4].tolist()
    name, text = save(page, "distances of all pairs")
    assert name == "two-rooms-pairs.csv"
    head, *rows = csv.reader(io.StringIO(text.decode(), newline=""))
    assert head == ["first", "second", *several]
    above = np.triu_indices(len(names), 1)
    assert [row[:2] for row in rows] == [[names[s], names[t]] for s, t in zip(*above, strict=True)]
    for column, d in enumerate(several.values(), start=2):
        assert [float(row[column]) for row in rows] == d.values[above].tolist()


def test_the_copied_command_explains_the_pair(show: Open, run: Run, tmp_path: Path) -> None:
    d = build_hostile()
    d.save(tmp_path / "it's $HOME.npz")
    assert run("view", "it's $HOME.npz", "-o", "page.html").code == 0
    page = show(Path("page.html").read_text(encoding="utf-8"))
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    program = tmp_path / "bin" / "bisimetric"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m bisimetric "$@"\n')
    program.chmod(0o755)
    for first, second in [(2, 1), (4, 3)]:
        click(page, first)
        click(page, second)
        page.locator(".copy-command").click()
        expect(page.locator("#announcement")).to_have_text("command copied")
        command = page.evaluate("navigator.clipboard.readText()")
        assert page.locator(".command code").text_content() == command
        done = subprocess.run(
            ["/bin/sh", "-c", f"{command} --json"],
            cwd=tmp_path,
            env={**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        assert found["states"] == [HOSTILE[first], HOSTILE[second]]
        assert found["distance"] == d.values[first, second]
    assert not (tmp_path / "gone").exists()


def test_a_picture_that_fails_is_reported(show: Open, rooms: Distance) -> None:
    page = show(explorer.render_page(rooms))
    page.evaluate("() => { HTMLCanvasElement.prototype.toBlob = (done) => done(null); }")
    page.locator("summary").click()
    page.get_by_role("button", name="map as PNG").click()
    expect(page.locator("summary")).to_have_text("not saved")
    expect(page.locator("#announcement")).to_have_text("the map as PNG could not be saved")
    expect(page.locator("summary")).to_have_text("save")


def test_without_a_file_there_is_no_command(show: Open, rooms: Distance) -> None:
    page = show(explorer.render_page(rooms))
    click(page, 4)
    click(page, 20)
    expect(page.locator(".stepper")).to_be_visible()
    assert page.locator(".command").count() == 0
