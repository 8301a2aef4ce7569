"""`bisimetric uses aggregate`, and its pictures."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from bisimetric import MDP, Distance, exact, uses, worlds
from bisimetric.errors import InputError
from bisimetric.views import clusters as views
from tests.commands import Run, assert_input_error


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    """A folder with tables of a small grid, of another world, and an estimate."""
    mdp = worlds.grid("   g\n * *\n    ", discount=0.9)
    for name, solve in (("d", exact.bisimulation), ("lax", exact.lax)):
        solve(mdp).save(tmp_path / f"{name}.npz")
    exact.bisimulation(mdp, samples=2).save(tmp_path / "draws.npz")
    exact.lax(worlds.load("pessimism")).save(tmp_path / "other.npz")
    return tmp_path


class TestCommand:
    def test_the_library_says_the_same(self, run: Run, tables: Path) -> None:
        words = "uses aggregate lax.npz --clusters 4 --rule medoids --seed 3 -o labels.npy"
        code, out, err = run(*words.split(), "--plot-clusters", "map.png")
        assert (code, err) == (0, "")
        d = Distance.load(tables / "lax.npz")
        found = uses.aggregate(d.mdp, d, clusters=4, rule="medoids", seed=3)
        np.testing.assert_array_equal(np.load("labels.npy"), found.labels)
        assert "classes    4\n  0   0,0" in out
        assert "\nrule       k-medoids\n" in out
        for line in list(found.lines())[1:]:
            assert f"{line}\n" in out
        assert "saved      labels.npy\nsaved      map.png\nnext: " in out
        assert Path("map.png").read_bytes().startswith(b"\x89PNG")

    def test_extreme_radii(self, run: Run, tables: Path) -> None:
        code, out, _ = run("uses", "aggregate", "d.npz", "--radius", "0")
        assert code == 0
        assert "classes    10\n" in out
        code, out, _ = run("uses", "aggregate", "d.npz", "--radius", "1e9")
        assert code == 0
        assert "classes    1\n" in out

    def test_an_estimate(self, run: Run, tables: Path) -> None:
        code, _, _ = run("uses", "aggregate", "draws.npz", "--clusters", "3")
        assert code == 0
        assert_input_error(
            run("uses", "aggregate", "draws.npz", "--clusters", "3", "--require-proof"),
            "proven",
        )

    def test_a_curve(self, run: Run, tables: Path) -> None:
        words = "uses aggregate d.npz lax.npz d.npz --plot-regret curve.svg --rule complete"
        code, out, err = run(*words.split())
        assert (code, err) == (0, "")
        assert [line.split("  ")[0] for line in out.splitlines()[3:-2]] == [
            "d~",
            "d_lax",
            "d~ (d.npz)",
            "map",
        ]
        assert Path("curve.svg").read_text().startswith("<?xml")
        assert out.endswith("saved      curve.svg\n")

    def test_a_curve_without_a_map(self, run: Run, tables: Path) -> None:
        code, out, _ = run("uses", "aggregate", "other.npz", "--plot-regret", "curve.png")
        assert code == 0
        assert "\nmap" not in out

    @pytest.mark.parametrize(
        ("words", "complaint"),
        [
            ("", "there is no distance"),
            ("d.npz", "give one of --clusters, --radius and --plot-regret; none"),
            ("d.npz --clusters 3 --radius 1", "more than one is given"),
            ("d.npz --clusters 3 --plot-regret c.png", "more than one is given"),
            ("d.npz lax.npz --clusters 3", "lax.npz is one distance too many"),
            ("d.npz --clusters 0", "clusters is 0"),
            ("d.npz --clusters 99", "99"),
            ("d.npz --radius -1", "radius is -1.0"),
            ("d.npz --clusters 2 -o labels.txt", "must end in .npy"),
            ("d.npz --clusters 2 -o d.npz", "d.npz is read by this command"),
            ("d.npz --clusters 2 --plot-clusters m.xyz", "m.xyz; use one of"),
            (
                "other.npz --clusters 2 --plot-clusters m.png",
                "cannot draw m.png",
            ),
            (
                "d.npz --plot-regret c.png --require-proof",
                "--require-proof is for --clusters or --radius",
            ),
            (
                "d.npz --plot-regret c.png -o l.npy",
                "--plot-regret yields no classes to save in l.npy",
            ),
            ("d.npz other.npz --plot-regret c.png", "3 states"),
            ("none.npz --clusters 2", "none.npz"),
        ],
    )
    def test_refusals(self, run: Run, tables: Path, words: str, complaint: str) -> None:
        before = sorted(tables.iterdir())
        assert_input_error(run("uses", "aggregate", *words.split()), complaint)
        assert sorted(tables.iterdir()) == before

    def test_a_network(self, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        from bisimetric.cli import output

        monkeypatch.setattr(output, "read_label", lambda path: {"format": "a network"})
        assert_input_error(
            run("uses", "aggregate", "net.safetensors", "--clusters", "2"),
            "net.safetensors is a network, not a distance matrix",
            "uses.cluster",
        )


class TestClasses:
    mdp = worlds.load("mirrored-rooms")

    def test_every_state_has_its_number(self) -> None:
        labels = np.arange(31) // 4
        figure = views.plot_classes(self.mdp, labels, [0, 5], title="some")
        (axes,) = figure.axes
        assert [text.get_text() for text in axes.texts] == [str(label) for label in labels]
        assert axes.get_title() == "some"
        assert len(axes.patches) == 2

    def test_colours(self) -> None:
        labels = np.minimum(np.arange(31) // 2, 14)
        labels[30] = 15
        axes = views.plot_classes(self.mdp, labels).axes[0]
        image = axes.images[0]
        assert self.mdp.positions is not None
        rows, columns = self.mdp.positions.astype(int).T
        drawn = np.asarray(image.cmap(image.norm(np.asarray(image.get_array()))))[rows, columns]
        assert drawn[30].tolist() == [1, 1, 1, 1], "a state alone in its class is white"
        for s, t in itertools.combinations(range(30), 2):
            same = bool((drawn[s] == drawn[t]).all())
            if labels[s] == labels[t]:
                assert same
            elif max(abs(rows[s] - rows[t]), abs(columns[s] - columns[t])) <= 1:
                assert not same, "neighbouring classes differ"

    def test_a_large_map_has_no_numbers(self) -> None:
        mdp = worlds.load("open-grid", rows=30, columns=30)
        figure = views.plot_classes(mdp, np.arange(mdp.num_states) % 5)
        assert not figure.axes[0].texts

    @pytest.mark.parametrize(
        ("labels", "message"),
        [
            (np.zeros(30, int), r"shape \(30,\)"),
            (np.zeros(31), "float64"),
            (np.full(31, -1), "from 0 on"),
        ],
    )
    def test_bad_labels(self, labels: NDArray[Any], message: str) -> None:
        with pytest.raises(InputError, match=message):
            views.plot_classes(self.mdp, labels)

    def test_no_map(self) -> None:
        with pytest.raises(InputError, match="plot_classes: the states have no map"):
            views.plot_classes(worlds.load("pessimism"), [0, 0, 1])


class TestCurve:
    def test_lines(self) -> None:
        mdp = worlds.load("pessimism")
        distances = {"d_lax": exact.lax(mdp), "plain": np.ones((3, 3)) - np.eye(3)}
        curve = uses.aggregation_curve(mdp, distances, rule="complete")
        figure = views.plot_aggregation_curve({"here": curve, "there": curve}, title="both")
        here, there = figure.axes
        drawn = [line for line in here.lines if np.size(line.get_xdata()) == 3]
        # Measured and promised by d_lax, and only measured by the plain table.
        assert len(drawn) == 3
        losses = [each.regret for each in curve.aggregations["plain"]]
        np.testing.assert_allclose(np.asarray(drawn[2].get_ydata()), losses, atol=1e-6)
        assert len(here.lines) == len(there.lines)
        labels = [text.get_text() for text in figure.legends[0].get_texts()]
        assert labels[:2] == [r"$d_{\mathrm{lax}}$", "plain"]
        assert labels[-1] == "regret bound"

    def test_many_states_have_a_logarithmic_axis(self) -> None:
        mdp = worlds.load("random", states=70)
        found = exact.on_policy(mdp, np.zeros(70, int))
        curve = uses.aggregation_curve(mdp, {"d^pi": found}, clusters=[1, 70])
        assert views.plot_aggregation_curve({"": curve}).axes[0].get_xscale() == "log"

    def test_where_nothing_can_be_lost(self) -> None:
        mdp = MDP.deterministic([[0], [1]], [[0.0], [0.0]], discount=0.5)
        curve = uses.aggregation_curve(mdp, {"d~": exact.bisimulation(mdp)})
        assert len(views.plot_aggregation_curve({"": curve}).axes) == 1

    def test_nothing(self) -> None:
        with pytest.raises(InputError, match="there is nothing to draw"):
            views.plot_aggregation_curve({})
