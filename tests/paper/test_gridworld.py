"""The GridWorld experiment: curves, files, and figures from files alone."""

from __future__ import annotations

import dataclasses
import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from bisimetric import exact, learned, worlds
from bisimetric.errors import InputError
from bisimetric.learned import LearnedDistance
from bisimetric.learned.castro2020 import PairNetwork
from bisimetric.learned.evaluation import compute_errors
from bisimetric.paper import gridworld, gridworld_curves
from bisimetric.paper.gridworld_curves import GridworldCurves

TINY = dataclasses.replace(
    gridworld.PAPER_CONFIG,
    network=PairNetwork((8,)),
    batch_size=16,
    target_update_period=5,
    horizon_growth=0.5,
)
SMALL: dict[str, Any] = {"updates": 40, "num_seeds": 2, "config": TINY, "log_every": 20}
FIGURES = ["aggregation.png", "errors.png", "on-policy-errors.png", "tables.png"]


pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of a tiny run of all parts, and nothing else."""
    target = tmp_path_factory.mktemp("the paper's") / "grid"
    gridworld.measure(target, **SMALL)
    return target


@pytest.fixture
def copy(folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(folder, tmp_path / "copy"))


class TestMeasure:
    def test_curves_of_every_part(self, folder: Path) -> None:
        found = gridworld.load_curves(folder)
        assert list(found) == list(gridworld.PARTS)
        for name, curves in found.items():
            assert curves.name == name
            assert curves.updates.tolist() == [20, 40]
            assert curves.learned.shape == (2, 31, 31)
            for field in ("loss", "error", "normalised", "correlation"):
                assert getattr(curves, field).shape == (2, 2)
            metadata = curves.metadata
            assert (metadata["updates"], metadata["seeds"], metadata["network"]) == (
                40,
                [0, 1],
                [8],
            )
            assert metadata["noise"] == (0.1 if "noise" in name.replace("no-noise", "") else 0.0)
            assert metadata["seconds"] > 0
            assert {"device", "jax", "numpy", "python", "bisimetric", "command"} <= metadata.keys()

    def test_errors_are_those_of_the_final_matrices(self, folder: Path) -> None:
        for curves in gridworld.load_curves(folder).values():
            mdp = worlds.load(curves.part.world)
            reference = getattr(exact, curves.part.kind)(mdp, tol=1e-6)
            np.testing.assert_allclose(curves.exact, reference.values, atol=reference.error)
            for seed, matrix in enumerate(curves.learned):
                for name, value in compute_errors(
                    jnp.asarray(curves.exact, jnp.float32), jnp.asarray(matrix)
                ).items():
                    found = getattr(curves, name)[seed, -1]
                    assert found == pytest.approx(float(value), rel=1e-4)

    def test_variants_and_seeds_differ(self, folder: Path) -> None:
        found = gridworld.load_curves(folder)
        matrices = [matrix for curves in found.values() for matrix in curves.learned]
        assert len({matrix.tobytes() for matrix in matrices}) == len(matrices) == 8

    def test_the_network_of_seed_0_is_saved(self, folder: Path) -> None:
        points = worlds.load("mirrored-rooms").positions
        assert points is not None
        for name, curves in gridworld.load_curves(folder).items():
            d = LearnedDistance.load(folder / f"{name}.safetensors")
            np.testing.assert_allclose(d.table(points + 0.5), curves.learned[0], rtol=1e-5)
            assert d.metadata == curves.metadata

    def test_inputs_of_the_network(self) -> None:
        mdp = worlds.load("mirrored-rooms")
        inputs = gridworld.SCALING(gridworld.cell_centres(mdp))
        expected = (np.asarray(mdp.positions) + 0.5) / 7 * 2 - 1
        np.testing.assert_allclose(inputs, expected, atol=1e-6)

    def test_the_paper_s_numbers(self) -> None:
        paper = gridworld.PAPER_CONFIG
        assert isinstance(paper.network, PairNetwork)
        assert paper.network.hidden == (729,)
        assert (paper.batch_size, paper.learning_rate, paper.epsilon) == (256, 0.01, 1e-8)
        assert (paper.target_update_period, paper.horizon_growth, gridworld.DISCOUNT) == (
            500,
            0.9,
            0.99,
        )
        assert (gridworld.UPDATES, gridworld.NUM_SEEDS) == (240_000, 10)
        assert (gridworld_curves.NOISE, gridworld.NOISE_CLIP) == (0.1, 0.3)

    def test_only_finished_parts_are_there(self, folder: Path) -> None:
        names = {path.name for path in folder.iterdir()} - {*FIGURES, "gridworld.json"}
        endings = ("npz", "safetensors")
        assert names == {f"{part}.{ending}" for part in gridworld.PARTS for ending in endings}

    def test_the_quick_run_has_fewer_updates_and_seeds(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        runs: list[tuple[int, int, int]] = []

        def record(folder: Any, name: str, metadata: Any, config: Any, *options: Any) -> Any:
            runs.append((metadata["updates"], len(metadata["seeds"]), config.batch_size))
            raise InputError("enough")

        monkeypatch.setattr(gridworld, "_train_part", record)
        for part in gridworld.PARTS:
            for quick in (True, False):
                with pytest.raises(InputError, match="enough"):
                    gridworld.measure(tmp_path, [part], quick=quick)
        assert runs[1::2] == [(240_000, 10, 256)] * 4
        assert all(updates < 40_000 and seeds == 3 for updates, seeds, _ in runs[::2])
        assert [batch for *_, batch in runs[::2]] == [256, 32, 256, 64]


class TestResume:
    def test_finished_parts_are_reused(self, copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (copy / "noise.npz").unlink()
        trained: list[str] = []
        train_part = gridworld._train_part

        def record(folder: Path, name: str, *arguments: Any) -> Any:
            trained.append(name)
            return train_part(folder, name, *arguments)

        monkeypatch.setattr(gridworld, "_train_part", record)
        before = GridworldCurves.load(copy / "policy.npz")
        found = gridworld.measure(copy, resume=True, **SMALL)
        assert trained == ["noise"]
        np.testing.assert_array_equal(found["policy"].learned, before.learned)

    def test_an_interrupted_part_is_resumed(
        self, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        fit = learned.fit

        def interrupt(kind: Any, source: Any, **options: Any) -> Any:
            fit(kind, source, **options | {"updates": 20})
            raise KeyboardInterrupt

        monkeypatch.setattr(learned, "fit", interrupt)
        with pytest.raises(KeyboardInterrupt):
            gridworld.measure(tmp_path, ["noise"], **SMALL)
        assert [path.name for path in tmp_path.iterdir()] == ["noise.run.safetensors"]
        monkeypatch.setattr(learned, "fit", fit)
        found = gridworld.measure(tmp_path, ["noise"], resume=True, **SMALL)["noise"]
        whole = GridworldCurves.load(folder / "noise.npz")
        np.testing.assert_array_equal(found.updates, whole.updates)
        np.testing.assert_array_equal(found.error, whole.error)

    def test_another_run_raises(self, copy: Path) -> None:
        with pytest.raises(
            InputError, match=r"noise\.npz is of another run: its updates is 40 and"
        ):
            gridworld.measure(copy, ["noise"], resume=True, **SMALL | {"updates": 41})


class TestDrawFigures:
    def test_figures_from_files_alone(self, copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(learned, "fit", None)
        monkeypatch.setattr(exact, "bisimulation", None)
        written = gridworld.draw_figures(copy)
        assert sorted(path.name for path in written) == sorted([*FIGURES, "gridworld.json"])
        for path in written[:-1]:
            assert path.read_bytes().startswith(b"\x89PNG")
        record = json.loads((copy / "gridworld.json").read_text())
        for name, curves in gridworld.load_curves(copy).items():
            stored = record[name]
            assert stored["metadata"] == curves.metadata
            assert stored["updates"] == [20, 40]
            mean = curves.error.mean(axis=0)
            np.testing.assert_allclose(stored["error"]["mean"], mean, rtol=1e-5)
            # Two samples: half the width is 12.706 s / sqrt(2), and s is |a - b| / sqrt(2).
            half = 12.7062 * np.abs(np.diff(curves.error, axis=0)[0]) / 2
            np.testing.assert_allclose(stored["error"]["half_interval"], half, rtol=1e-4, atol=1e-9)
        few, many = record["aggregation"]
        assert few["clusters"] <= 8
        assert many["clusters"] <= 31
        assert 1 / 31 <= few["purity"] <= 1
        assert 1 / 31 <= many["purity"] <= 1

    def test_missing_parts_are_skipped(self, folder: Path, tmp_path: Path) -> None:
        shutil.copy(folder / "policy.npz", tmp_path)
        names = [path.name for path in gridworld.draw_figures(tmp_path)]
        assert names == ["on-policy-errors.png", "gridworld.json"]

    def test_titles_give_updates_seeds_and_batches(self, folder: Path) -> None:
        off, on = (GridworldCurves.load(folder / f"{name}.npz") for name in ("no-noise", "noise"))
        assert gridworld_curves.format_extent([off, on]) == "40 updates, 2 seeds, batches of 16"
        longer = dataclasses.replace(on, metadata=on.metadata | {"updates": 9_000})
        assert gridworld_curves.format_extent([off, longer]) == (
            "40 (noise off) and 9,000 (noise on) updates, 2 seeds, batches of 16"
        )

    def test_an_empty_folder(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError, match=r"has no curves, such as noise\.npz"):
            gridworld.draw_figures(tmp_path)


class TestFormatTable:
    def test_rows(self, folder: Path) -> None:
        one = GridworldCurves.load(folder / "noise.npz")
        columns = np.array([[9.0, 1.0, 4.0], [9.0, 3.0, 4.0]])
        one = dataclasses.replace(
            one,
            updates=np.array([2_500, 5_000, 240_000]),
            error=columns,
            normalised=columns / 100,
            correlation=columns / 10,
        )
        head, *rows, last = gridworld_curves.format_table({"noise": one})
        assert " ".join(head.split()) == (
            "variant updates absolute error normalised error correlation"
        )
        assert rows[0].split()[:6] == ["d~,", "noise", "on", "2,500", "9", "+-"]
        # s is sqrt(2), so that half the width is 12.706.
        assert rows[1].split()[:4] == ["5,000", "2", "+-", "13"]
        assert rows[1].endswith("smallest")
        last_row = "240,000 4 +- 0 of 150.3 0.04 +- 0 0.4 +- 0"
        assert rows[2].split() == last_row.split()
        assert last.split()[:2] == ["2", "seeds,"]
        assert "converged" not in last

    @pytest.mark.parametrize(("final", "converged"), [(7.5, True), (7.6, False), (150.0, False)])
    def test_convergence_is_reported(self, folder: Path, final: float, converged: bool) -> None:
        one = GridworldCurves.load(folder / "noise.npz")
        # Only the last record counts: their mean, not the smallest.
        error = np.array([[1.0, final - 1], [1.0, final + 1]])
        one = dataclasses.replace(one, error=error)
        assert one.converged is converged
        *_, last = gridworld_curves.format_table({"noise": one})
        note = f"not converged: the final error is {final / 150.25:.0%} of the largest distance"
        assert last.endswith(note) is not converged

    def test_rows_are_unique(self, folder: Path) -> None:
        one = GridworldCurves.load(folder / "policy.npz")
        one = dataclasses.replace(one, error=np.array([[2.0, 1.0], [2.0, 1.0]]))
        rows = list(gridworld_curves.format_table({"policy": one}))
        assert len(rows) == 3
        assert rows[1].split()[:4] == ["d^pi,", "noise", "off", "40"]


class TestReproduce:
    def test_measures_and_draws(self, tmp_path: Path) -> None:
        found = gridworld.reproduce(tmp_path / "new", ["policy"], **SMALL)
        assert list(found) == ["policy"]
        assert sorted(path.name for path in (tmp_path / "new").iterdir()) == [
            "gridworld.json",
            "on-policy-errors.png",
            "policy.npz",
            "policy.safetensors",
        ]

    def test_the_stored_command_repeats_the_call(self, folder: Path) -> None:
        metadata = GridworldCurves.load(folder / "noise.npz").metadata
        python, flag, code = shlex.split(metadata["command"])
        assert (python, flag) == ("python", "-c")
        call: dict[str, Any] = {}

        def record(*args: Any, **options: Any) -> None:
            call.update(options, folder=args[0], parts=args[1])

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(gridworld, "measure", record)
            exec(code, {})
        assert call == {
            "folder": str(folder),
            "parts": list(gridworld.PARTS),
            "updates": 40,
            "num_seeds": 2,
            "quick": False,
        }

    def test_a_file_as_folder_raises(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("old")
        with pytest.raises(NotADirectoryError, match=r"file: it is a file; name a folder\."):
            gridworld.reproduce(tmp_path / "file")
        assert (tmp_path / "file").read_text() == "old"

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"parts": ()}, r"parts is \(\) and must be some of no-noise, noise, policy"),
            ({"parts": "noise"}, r"parts is 'noise' and must be some of"),
            ({"parts": ["nois"]}, r"there is no part 'nois'; did you mean 'noise'"),
            ({"updates": 0}, r"updates is 0 and must be a whole number, at least 1\."),
            ({"num_seeds": 1}, r"num_seeds is 1 and .* at least 2: one run has no interval"),
            ({"num_seeds": 2.5}, r"num_seeds is 2\.5 and must be a whole number"),
        ],
    )
    def test_options_are_validated(
        self, tmp_path: Path, options: dict[str, Any], message: str
    ) -> None:
        with pytest.raises(InputError, match=message):
            gridworld.measure(tmp_path / "new", **options)
        assert list(tmp_path.iterdir()) == []


class TestFiles:
    def test_the_same_after_saving(self, folder: Path, tmp_path: Path) -> None:
        one = GridworldCurves.load(folder / "noise.npz")
        one.save(tmp_path / "again.npz")
        again = GridworldCurves.load(tmp_path / "again.npz")
        for field in dataclasses.fields(GridworldCurves):
            np.testing.assert_equal(getattr(again, field.name), getattr(one, field.name))

    def test_a_truncated_file_raises(self, folder: Path, tmp_path: Path) -> None:
        whole = (folder / "noise.npz").read_bytes()
        (tmp_path / "noise.npz").write_bytes(whole[: len(whole) // 2])
        with pytest.raises(
            InputError, match=r"noise\.npz .* no curves of the GridWorld experiment"
        ):
            GridworldCurves.load(tmp_path / "noise.npz")

    @pytest.mark.parametrize("about", ['{"format": "other"}', "[]", "{}", "no JSON"])
    def test_another_file_raises(self, tmp_path: Path, about: str) -> None:
        np.savez(tmp_path / "noise.npz", about=np.array(about))
        with pytest.raises(
            InputError, match=r"noise\.npz .* no curves of the GridWorld experiment"
        ):
            GridworldCurves.load(tmp_path / "noise.npz")

    def test_the_documented_curves_can_be_read(self) -> None:
        folder = Path(__file__).parents[2] / "docs" / "reports" / "gridworld"
        curves = gridworld.load_curves(folder)
        assert list(curves) == list(gridworld.PARTS)
        for name, part in curves.items():
            assert part.metadata["updates"] == part.updates[-1] == 240_000
            assert part.metadata["seeds"] == list(range(10))
            network = LearnedDistance.load(folder / f"{name}.safetensors")
            assert network.metadata["updates"] == 240_000

    def test_a_missing_file_raises(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError, match=r"cannot read .*none\.npz"):
            GridworldCurves.load(tmp_path / "none.npz")


def test_measuring_needs_neither_matplotlib_nor_gymnasium(tmp_path: Path) -> None:
    source = Path(gridworld.__file__).parent
    code = f"""
import sys, types
for name in ("matplotlib", "gymnasium"):
    sys.modules[name] = None
package = types.ModuleType("bisimetric.paper")
package.__path__ = [{str(source)!r}]
sys.modules["bisimetric.paper"] = package
from bisimetric.learned.castro2020 import Castro2020Config, PairNetwork
from bisimetric.paper import gridworld
tiny = Castro2020Config(PairNetwork((4,)), batch_size=8)
gridworld.measure({str(tmp_path)!r}, ["policy"], updates=4, num_seeds=2, config=tiny, log_every=2)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    assert GridworldCurves.load(tmp_path / "policy.npz").updates.tolist() == [2, 4]
