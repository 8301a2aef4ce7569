"""The command line, end to end: what it prints, and what it saves."""

from __future__ import annotations

import dataclasses
import math
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

import bisimetric
from bisimetric import MDP, Distance, exact, planning, relation, worlds
from bisimetric.cli._main import COMMANDS, GROUP_HELP, parse
from tests.commands import FIGURE_FLAGS, Run, assert_input_error, start_command

ROOT = Path(__file__).parents[2]
GRID = "******\n*   g*\n* ** *\n******\n"


NORMALISED = ("--normalise", "--norm", "quantile", "--plot-heatmap", "n.png")


def test_version(run: Run) -> None:
    assert run("--version") == (0, f"bisimetric {bisimetric.__version__}\n", "")


@pytest.mark.parametrize("path", [(), *((group,) for group in GROUP_HELP), *COMMANDS], ids=" ".join)
def test_help_ends_with_examples_that_parse(run: Run, path: tuple[str, ...]) -> None:
    code, out, _ = run(*path, "--help")
    assert code == 0
    assert f"usage: {' '.join(['bisimetric', *path])}" in out
    examples = re.findall(r"^  bisimetric (.*)$", out.partition("examples:\n")[2], re.MULTILINE)
    assert examples
    for example in examples:
        words = example.split()
        assert tuple(words[: len(path)]) == path
        assert callable(parse(words))


def test_worlds_lists_every_world_with_its_options(run: Run) -> None:
    code, out, _ = run("worlds")
    assert code == 0
    for world in worlds.describe():
        assert f"{world.name}: {world.description}" in out
        assert all(f"{key}={value}" in out for key, value in world.options.items())
    assert ".txt" in out
    assert "bisimetric rollout FrozenLake-v1 -o data.npz" in out


@pytest.mark.parametrize("which", ["bisimulation", "on-policy", "lax", "mico", "reduced-mico"])
def test_exact_prints_saves_and_draws(run: Run, which: str, tmp_path: Path) -> None:
    world = ("mirrored-rooms-policy", "--discount", "0.9", "--tol", "1e-8")
    code, out, err = run("exact", which, *world, "-o", "d.npz", *FIGURE_FLAGS)
    assert (code, err) == (0, "")
    assert sorted(os.listdir(tmp_path)) == ["a.pdf", "d.npz", "h.svg", "m.png"]
    saved = Distance.load("d.npz")
    mdp = worlds.load("mirrored-rooms-policy", discount=0.9)
    policy = [mdp.policy] if which in ("on-policy", "mico", "reduced-mico") else []
    expected = getattr(exact, which.replace("-", "_"))(mdp, *policy, tol=1e-8)
    np.testing.assert_allclose(saved.values, expected.values, atol=saved.error + expected.error)
    assert saved.error <= 1e-8
    assert saved.metadata["world"] == "mirrored-rooms-policy"
    assert "31 states, 4 actions, deterministic, discount 0.9" in out
    assert f"{saved.values.max():.6g}, between " in out
    assert ("policy     the world's own" in out) == bool(policy)
    assert ("of states at distance 0" in out) == (which != "mico")
    assert [f"saved      {name}" in out for name in sorted(os.listdir(tmp_path))] == [True] * 4
    last = out.splitlines()[-1]
    following = "show d.npz" if which == "reduced-mico" else "explain d.npz "
    assert last.startswith(f"next: bisimetric {following}")
    assert run(*last.removeprefix("next: bisimetric ").split()).code == 0


def test_float32_on_request(run: Run) -> None:
    assert run("exact", "lax", "pessimism", "--dtype", "float32", "-o", "d.npz").code == 0
    assert Distance.load("d.npz").values.dtype == np.float32


def test_options_of_a_world_may_be_listed_and_repeated(run: Run) -> None:
    together = ("--set", "rows=4", "columns=5", "obstacles=0")
    apart = ("--set", "rows=4", "--set", "columns=5", "--set", "obstacles=0")
    for options in (together, apart):
        assert "20 states" in run("relation", "lax", "open-grid", *options).out


def test_classes_at_distance_zero_are_counted(run: Run) -> None:
    _, out, _ = run("exact", "on-policy", "mirrored-rooms-policy")
    mdp = worlds.load("mirrored-rooms-policy")
    assert mdp.policy is not None
    classes = relation.on_policy(mdp, mdp.policy).max() + 1
    assert f"{classes} classes of states at distance 0" in out


def test_mico_of_a_world_that_branches(run: Run, tmp_path: Path) -> None:
    coin = MDP(
        [[[0, 0.5, 0.5]], [[0, 1, 0]], [[0, 0, 1]]],
        [[0.0], [0.0], [1.0]],
        discount=0.5,
        names=["coin", "tails", "heads"],
    )
    exact.mico(coin).save("d.npz")
    code, out, _ = run(
        "show", "d.npz", "--from", "coin", "--nearest", "2", "--plot-heatmap", "h.png"
    )
    assert code == 0
    assert "distance   MICo, the distance of independent couplings\n" in out
    assert "classes" not in out
    assert "nearest to coin:\n  tails  0.5\n  heads  1.5\n" in out
    assert "MICo distance from coin (discount 0.5)\n  coin   0.500\n" in out
    assert (tmp_path / "h.png").read_bytes().startswith(b"\x89PNG")
    assert "step 0: two copies of coin take 0\n" in run("explain", "d.npz", "coin", "coin").out


def test_normalised_distances_are_shown(run: Run, tmp_path: Path) -> None:
    exact.bisimulation(worlds.load("pessimism")).save("d.npz")
    plain, scaled = (run("show", "d.npz", "--from", "s", *flags).out for flags in ((), NORMALISED))
    assert "\nbisimulation distance from s (discount 0.9)\n  s      0\n  t  10.00\n" in plain
    assert "\n(1 - discount) * bisimulation distance from s (discount 0.9)\n" in scaled
    assert "  t  1.000\n" in scaled
    assert (tmp_path / "n.png").read_bytes().startswith(b"\x89PNG")


def test_a_state_may_be_the_farthest_from_itself(run: Run) -> None:
    pair = MDP(np.full((2, 1, 2), 0.5), [[0.0], [0.0]], discount=0.5, names="xy")
    Distance(np.array([[2.0, 1.0], [1.0, 0.0]]), 0.0, "mico", pair).save("d.npz")
    assert "largest    2, of x to itself\n" in run("show", "d.npz").out


def test_an_estimate_is_said_to_be_one(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {}

    def estimated(mdp: MDP, **options: object) -> Distance:
        asked.update(options)
        return dataclasses.replace(honest(mdp), error=math.inf, estimate=0.25)

    honest = exact.bisimulation
    monkeypatch.setattr(exact, "bisimulation", estimated)
    words = ("exact", "bisimulation", "pessimism", "--samples", "30", "--seed", "7", "--tol", "0.1")
    code, out, err = run(*words, "-o", "d.npz")
    assert (code, err) == (0, "")
    here = {"dtype": "float64", "device": "cpu"}
    assert asked == {**here, "samples": 30, "seed": 7, "tol": 0.1, "normalised_tol": None}
    for said in (out, run("show", "d.npz").out):
        assert "estimate   sampled, error about 0.25; nothing is proven\n" in said
        assert "error  " not in said
        assert "classes" not in said
    assert "an estimate, off by about 0.2" in run("explain", "d.npz", "s", "t").out
    asked.clear()
    run("exact", "bisimulation", "pessimism")
    assert asked == {**here, "samples": None, "seed": 0, "tol": None, "normalised_tol": None}


@pytest.mark.slow
def test_samples_end_to_end(run: Run, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    P, R = rng.dirichlet(np.ones(6), size=(6, 2)), rng.random((6, 2))
    np.savez(tmp_path / "model.npz", P=P, R=R)
    words = ("exact", "bisimulation", "model.npz", "--discount", "0.5", "--samples", "5")
    tables = []
    for key in ("1", "1", "2"):
        code, out, err = run(*words, "--seed", key, "-o", "d.npz")
        assert (code, err) == (0, "")
        assert "estimate   sampled, error about " in out
        tables.append(Distance.load("d.npz").values)
    assert np.array_equal(tables[0], tables[1])
    assert not np.array_equal(tables[0], tables[2])


@pytest.mark.parametrize("which", ["bisimulation", "on-policy", "lax"])
@pytest.mark.parametrize("copies", [1, 2])
def test_pairs_are_answered_without_a_table(
    run: Run, which: str, copies: int, tmp_path: Path
) -> None:
    world = "mirrored-rooms-policy" if copies == 1 else "duplicated-grid"
    options = [] if copies == 1 else ["--set", "base=mirrored-rooms-policy"]
    mdp = worlds.load("mirrored-rooms-policy")
    policy = [mdp.policy] if which == "on-policy" else []
    d = getattr(exact, which.replace("-", "_"))(mdp, *policy)
    level = "" if copies == 1 else "upper "
    asked = [("1,1", "2,3"), ("7,5", "1,3"), ("1,5", "1,5")]
    words = [word for s, t in asked for word in ("--pairs", level + s, level + t)]
    code, out, err = run("exact", which, world, *options, *words, "--tol", "1e-7")
    assert (code, err) == (0, "")
    found = re.findall(r"^pair +(\S.*?)  +(\S.*?)  +(\S+)$", out, re.MULTILINE)
    assert [(s, t) for s, t, _ in found] == [(level + s, level + t) for s, t in asked]
    for (s, t), (*_, far) in zip(asked, found, strict=True):
        assert float(far) == pytest.approx(d(s, t), rel=1e-5)
    assert re.search(r"^error +at most \S+, proven$", out, re.MULTILINE)
    assert ("policy     the world's own" in out) == bool(policy)
    ((explored, everything),) = re.findall(
        r"^explored +([\d,]+) of ([\d,]+) pairs$", out, re.MULTILINE
    )
    assert 0 < int(explored.replace(",", "")) <= int(everything.replace(",", ""))
    assert not os.listdir(tmp_path)


def test_which_policy_was_used_is_said(run: Run, tmp_path: Path) -> None:
    assert "policy     optimal" in run("exact", "on-policy", "mirrored-rooms").out
    mdp = worlds.load("mirrored-rooms")
    policy = planning.greedy_policy(mdp)
    np.save(tmp_path / "p.npy", policy)
    np.savetxt(tmp_path / "p.txt", policy, fmt="%d")
    tables = []
    for given in ("optimal", "p.npy", "p.txt"):
        code, out, _ = run("exact", "on-policy", "mirrored-rooms", "--policy", given, "-o", "d.npz")
        assert code == 0
        assert f"policy     {given}\n" in out
        tables.append(Distance.load("d.npz").values)
    assert np.array_equal(tables[0], tables[1])
    assert np.array_equal(tables[0], tables[2])


def test_a_text_file_end_to_end(run: Run, tmp_path: Path) -> None:
    (tmp_path / "my.txt").write_text(GRID)
    assert "6 states" in run("exact", "bisimulation", "my.txt", "-o", "d.npz").out
    code, out, _ = run("explain", "d.npz", "1,1", "1,4")
    assert code == 0
    assert out == str(Distance.load("d.npz").explain("1,1", "1,4")) + "\n"
    code, out, _ = run("show", "d.npz", "--from", "1,4", "--nearest", "3", "--plot-map", "map.png")
    assert code == 0
    near = Distance.load("d.npz").nearest("1,4", 3)
    assert len(re.findall(r"^  \d,\d +[\d.]+$", out, re.MULTILINE)) == 3
    assert f"{near[0][1]:.6g}" in out
    assert "world      my.txt: 6 states" in out
    assert "method" in out
    assert "[ ] source" in out
    assert (tmp_path / "map.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("which", ["bisimulation", "on-policy", "lax"])
def test_stochastic_worlds_end_to_end(run: Run, which: str) -> None:
    world = ("duplicated-grid", "--set", "base=mirrored-rooms-policy")
    code, out, err = run(
        "exact", which, *world, "-o", "d.npz", "--plot-map", "m.png", "--from", "15"
    )
    assert (code, err) == (0, "")
    saved = Distance.load("d.npz")
    one = worlds.load("mirrored-rooms-policy")
    policy = [one.policy] if which == "on-policy" else []
    d = getattr(exact, which.replace("-", "_"))(one, *policy)
    np.testing.assert_allclose(saved.values, np.tile(d.values, (2, 2)), atol=saved.error + d.error)
    assert "62 states, 4 actions, stochastic" in out
    assert "error      at most " in out
    last = shlex.split(out.splitlines()[-1].partition("explain")[2])
    explained = run("explain", *last)
    assert explained.code == 0
    assert "step 0: " in explained.out
    _, out, _ = run("relation", which, *world)
    assert "lower 1,1  " in out
    assert "  upper 1,1" in out


@pytest.mark.parametrize("which", ["bisimulation", "on-policy", "lax"])
def test_relation_lists_and_saves_the_classes(run: Run, which: str) -> None:
    code, out, _ = run("relation", which, "mirrored-rooms-policy", "-o", "labels.npy")
    mdp = worlds.load("mirrored-rooms-policy")
    policy = [mdp.policy] if which == "on-policy" else []
    expected = getattr(relation, which.replace("-", "_"))(mdp, *policy)
    assert code == 0
    assert np.array_equal(np.load("labels.npy"), expected)
    assert f"classes    {expected.max() + 1}\n" in out
    assert ("2,1  3,2  6,1  7,2" in out) == (which == "on-policy")


def test_relation_abstraction_lists_all_kinds_or_the_classes_of_one(run: Run) -> None:
    code, out, _ = run("relation", "abstraction", "mirrored-rooms")
    assert code == 0
    assert [line.split()[:2] for line in out.splitlines()[2:]] == [
        ["bisimulation", "31"], ["q-pi", "31"], ["q-star", "18"], ["a-star", "10"],
        ["pi-star", "3"],
    ]  # fmt: skip
    command = ("relation", "abstraction", "mirrored-rooms", "--kind", "pi-star")
    assert "classes    3" in run(*command, "-o", "labels.npy").out
    expected = relation.pi_star_irrelevance(worlds.load("mirrored-rooms"))
    assert np.array_equal(np.load("labels.npy"), expected)
    assert_input_error(run(*command[:3], "-o", "labels.npy"), "give --kind, too")


def test_relation_gives_sizes_where_classes_are_many(run: Run, tmp_path: Path) -> None:
    corridor = "*" * 61 + "\n*" + " " * 58 + "g*\n" + "*" * 61
    (tmp_path / "long.txt").write_text(f"{corridor}\n{corridor}")
    out = run("relation", "bisimulation", "long.txt").out
    assert "118 states" in out
    assert "59 classes of 2 states" in out


def test_demo_checks_shows_and_saves(run: Run, tmp_path: Path) -> None:
    code, out, err = run("demo", "--output", "new/folder")
    assert (code, err) == (0, "")
    assert out.count("holds ") == 3
    assert "BROKEN" not in out
    assert "[    0]" in out
    made = set(os.listdir(tmp_path / "new" / "folder"))
    assert made == {
        "bisimulation.npz",
        "lax.npz",
        "on-policy.npz",
        "hallway.png",
        "all-maps.png",
        "heatmap.png",
    }
    for line in out.partition("next:\n")[2].splitlines():
        assert run(*line.split()[1:]).code == 0


def test_demo_fails_where_the_chain_is_broken(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = exact.lax

    def swollen(mdp: MDP) -> Distance:
        d = honest(mdp)
        values = d.values.copy()
        values[3, 7] = values[7, 3] = 1e3
        return Distance(values, d.error, d.kind, d.mdp)

    monkeypatch.setattr(exact, "lax", swollen)
    code, out, _ = run("demo")
    assert code == 1
    assert "BROKEN  d_lax <= d~" in out
    assert "1,4 and 2,3: 1000 > " in out


@pytest.mark.slow
def test_ctrl_c_leaves_no_file(tmp_path: Path) -> None:
    words = ("exact", "bisimulation", "random", "--set", "states=9000", "-o", "d.npz")
    with start_command(*words, folder=tmp_path) as process:
        watched = psutil.Process(process.pid)
        deadline = time.monotonic() + 60
        # A table of 9,000 states takes 618 MiB: the memory tells that the work has begun.
        while watched.memory_info().rss < 500 * 2**20 and time.monotonic() < deadline:
            assert process.poll() is None, "the work ended before it could be interrupted"
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")
    assert re.fullmatch(r"bisimetric: interrupted.*\n", err)
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize("words", ["worlds", "--help", "relation bisimulation mirrored-rooms"])
def test_a_closed_pipe_is_no_error(words: str, tmp_path: Path) -> None:
    with start_command(*words.split(), folder=tmp_path) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        err = process.stderr.read()
    assert (process.returncode, err) == (141, "")


@pytest.mark.slow
@pytest.mark.parametrize(
    "script", sorted((ROOT / "examples").glob("*.py")), ids=lambda script: script.stem
)
def test_examples_run(script: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(script)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout
