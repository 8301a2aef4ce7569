"""`bisimetric uses transfer`, and the picture of a carried policy."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from matplotlib.quiver import Quiver

from bisimetric import MDP, InputError, uses, worlds
from bisimetric.views.transfer import plot_transfer
from tests.commands import Run, assert_input_error

SMALL, LARGE = "****\n*  g\n****\n", "******\n*    g\n*    *\n******\n"


@pytest.fixture
def grids(tmp_path: Path) -> tuple[str, str]:
    """Two grids as files."""
    for name, text in (("small.txt", SMALL), ("large.txt", LARGE)):
        (tmp_path / name).write_text(text, encoding="utf-8")
    return "small.txt", "large.txt"


@pytest.mark.parametrize("rule", ["optimistic", "pessimistic", "nearest", "hopeful"])
@pytest.mark.parametrize("kind", ["lax", "bisimulation"])
def test_transfer_prints_saves_and_draws(
    run: Run, grids: tuple[str, str], rule: str, kind: str, tmp_path: Path
) -> None:
    words = ("--discount", "0.9", "--rule", rule, "--kind", kind, "--tol", "1e-8")
    code, out, err = run(
        "uses", "transfer", *grids, *words, "-o", "p.npy", "--plot-policy", "p.png"
    )
    assert (code, err) == (0, "")
    assert sorted(os.listdir(tmp_path)) == ["large.txt", "p.npy", "p.png", "small.txt"]
    small, large = (worlds.grid(text, discount=0.9) for text in (SMALL, LARGE))
    assert "source     small.txt: 3 states, 4 actions, deterministic, discount 0.9" in out
    assert "target     large.txt: 9 states, 4 actions, deterministic, discount 0.9" in out
    assert f"rule       {rule}, by {'d_lax' if kind == 'lax' else 'd~'}" in out
    if kind == "lax":
        found = uses.transfer(small, large, rule=rule)  # type: ignore[arg-type]
        np.testing.assert_array_equal(np.load("p.npy"), found.policy)
    last = out.splitlines()[-1]
    assert last.startswith("next: bisimetric exact on-policy large.txt --discount 0.9 --policy p")
    assert run(*last.removeprefix("next: bisimetric ").split()).code == 0


def test_worlds_have_options_each(run: Run) -> None:
    sizes = ("--source-set", "rows=2", "columns=3", "--target-set", "rows=3", "--target-set")
    code, out, _ = run("uses", "transfer", "open-grid", "open-grid", *sizes, "columns=4")
    assert code == 0
    assert "source     open-grid: 5 states" in out
    assert "target     open-grid: 11 states" in out
    assert "next: add -o policy.npy" in out


def test_what_cannot_be_done_is_refused(run: Run, grids: tuple[str, str]) -> None:
    def command(*words: str) -> None:
        assert_input_error(run("uses", "transfer", *words[:-1]), words[-1])

    command(*grids, "-o", "p.txt", "cannot save a policy as p.txt; the name must end in .npy.")
    command(*grids, "--plot-policy", "p.doc", "cannot save a figure as p.doc")
    command(*grids, "-o", "small.txt", "small.txt is read by this command")
    command("pessimism", grids[0], "pessimism has discount 0.9 and small.txt 0.99, and they must")
    command(*grids, "--target-set", "rows", "--target-set 'rows' must be KEY=VALUE")
    command(*grids, "--source-set", "rows=2", "there is no option 'rows'")
    command("pessimism", grids[0], "--discount", "0.9", "--kind", "bisimulation", "use --kind lax")
    random = ("random", "--target-set", "states=9", "--plot-policy", "p.png")
    command(grids[0], *random, "cannot draw p.png")
    assert not Path("p.png").exists()


def test_arrows_point_where_the_policy_leads() -> None:
    small, large = (worlds.grid(text, discount=0.9) for text in (SMALL, LARGE))
    found = uses.transfer(small, large)
    figure = plot_transfer(found)
    assert [axes.get_title() for axes in figure.axes] == [
        "source, optimal policy",
        "target, optimistic\nno regret",
    ]
    assert large.positions is not None
    steps = large.positions[large.apply_policy(found.policy).next_state[:, 0]] - large.positions
    drawn = {}
    for arrows in figure.axes[1].collections:
        if isinstance(arrows, Quiver):
            numbers = (np.asarray(each) for each in (arrows.Y, arrows.X, arrows.V, arrows.U))
            for row, column, down, right in np.column_stack(list(numbers)).tolist():
                drawn[row, column] = (np.sign(down), np.sign(right))
    for (row, column), step in zip(large.positions.tolist(), steps.tolist(), strict=True):
        assert drawn[row, column] == tuple(step)


def test_several_rules_have_a_map_each_in_one_scale() -> None:
    small, large = (worlds.grid(text, discount=0.9) for text in (SMALL, LARGE))
    found = [uses.transfer(small, large, rule=rule) for rule in ("nearest", "optimistic")]
    figure = plot_transfer(*found)
    assert len(figure.axes) == 3
    nearest, best = (axes.images[0] for axes in figure.axes[1:])
    assert nearest.norm is best.norm
    assert f"regret at most {found[0].max_regret:.3f}" in figure.axes[1].get_title()
    shown = np.asarray(nearest.get_array()).ravel()
    np.testing.assert_allclose(np.sort(shown[np.isfinite(shown)]), np.sort(found[0].regret))


def test_pictures_that_cannot_be_drawn_are_refused() -> None:
    bare = MDP.deterministic([[0]], [[1]], discount=0.9)
    room = worlds.grid(" g", discount=0.9)
    with pytest.raises(InputError, match="the states of the source have no map"):
        plot_transfer(uses.transfer(bare, room))
    with pytest.raises(InputError, match="between the same two MDPs, at least one"):
        plot_transfer(
            uses.transfer(room, room), uses.transfer(room, worlds.grid("  g", discount=0.9))
        )
    with pytest.raises(InputError, match="at least one"):
        plot_transfer()
