"""Time per stroke of the playground in Chromium: `python benchmarks/playground.py`.

Each stroke paints or erases one wall of a grid with random obstacles and one goal (31 states: the
mirrored rooms), then waits until the new distances are on the map. Needs `make test-browser`.
"""

from __future__ import annotations

import argparse
import os
import shutil

import numpy as np
from playwright.sync_api import Page, sync_playwright

from bisimetric import explorer
from bisimetric.worlds.builtin import MIRRORED_ROOMS

SHAPES = {31: None, 200: (12, 20), 400: (18, 27), 600: (25, 30)}
"""Rows and columns by the number of states, about a sixth of the cells being walls."""
NAMES = {"bisimulation": "d~", "on_policy": "d^pi", "lax": "d_lax"}
MEASURE = """async ([text, kind, discount, cells]) => {
  const lines = text.split("\\n");
  const grid = { rows: lines.length, columns: lines[0].length, cells: lines.join("") };
  const wait = async () => {
    while (bisimetric.distance === null) await new Promise((done) => setTimeout(done, 0));
  };
  bisimetric.change({ grid, kind, discount });
  await wait();
  const times = [];
  for (const cell of cells) {
    const { grid } = bisimetric.model;
    const painted = grid.cells[cell] === "*" ? " " : "*";
    const joined = grid.cells.slice(0, cell) + painted + grid.cells.slice(cell + 1);
    const start = performance.now();
    bisimetric.change({ grid: { ...grid, cells: joined } });
    await wait();
    times.push([performance.now() - start, bisimetric.lastSolution.milliseconds]);
  }
  return [times, bisimetric.mdp.numStates, bisimetric.lastSolution.worker];
}"""


def create_grid(num_states: int, rng: np.random.Generator) -> str:
    """Return a grid of about this number of states."""
    shape = SHAPES[num_states]
    if shape is None:
        return MIRRORED_ROOMS.strip("\n")
    cells = np.full(shape, " ")
    walls = rng.choice(cells.size - 1, cells.size - num_states, replace=False)
    cells.flat[walls] = "*"
    cells.flat[-1] = "g"
    return "\n".join("".join(row) for row in cells)


def measure(page: Page, num_states: int, kind: str, discount: float, strokes: int) -> list[str]:
    """Return one row of the table."""
    rng = np.random.default_rng(0)
    text = create_grid(num_states, rng)
    cells = text.replace("\n", "")
    inside = [cell for cell, character in enumerate(cells) if character == " "]
    # Each wall is painted and erased.
    places = np.repeat(rng.choice(inside, strokes // 2), 2).tolist()
    times, states, worker = page.evaluate(MEASURE, [text, kind, discount, places])
    whole, solving = np.median(np.array(times), axis=0)
    slowest = np.max(np.array(times)[:, 0])
    where = "Worker" if worker else "main thread"
    return [f"{states}", NAMES[kind], f"{discount:g}", where] + [
        f"{number:.1f}" for number in (solving, whole, slowest)
    ]


def main() -> None:
    """Measure and print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--strokes", type=int, default=20, help="per row")
    parser.add_argument("--states", type=int, nargs="+", choices=SHAPES, default=[31, 200, 400])
    options = parser.parse_args()
    head = ["states", "distance", "discount", "solved in", "solver (ms)", "stroke (ms)", "slowest"]
    print("| " + " | ".join(head) + " |\n" + "|---" * len(head) + "|")
    with sync_playwright() as playwright:
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        path = shutil.which("chromium")
        browser = playwright.chromium.launch(executable_path=path, args=arguments)
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.set_content(explorer.render_playground())
        for num_states in options.states:
            for kind in NAMES:
                for discount in (0.9, 0.99):
                    row = measure(page, num_states, kind, discount, options.strokes)
                    print("| " + " | ".join(row) + " |", flush=True)
        browser.close()


if __name__ == "__main__":
    main()
