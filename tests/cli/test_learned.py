"""Networks on the command line: own data in one call, runs that go on, files, and mistakes."""

from __future__ import annotations

import dataclasses
import inspect
import itertools
import math
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from bisimetric import Distance, Transitions, exact, learned, worlds
from bisimetric.cli import learned_report, network_report
from bisimetric.cli.learned_options import (
    DEFAULT_UPDATES,
    LearnedTrainingOptions,
    MicoTrainingOptions,
    build_arguments,
)
from bisimetric.cli.options import parse_count
from bisimetric.cli.output import read_label
from bisimetric.learned import _fit, defaults, files, training
from tests.commands import Result, Run, assert_input_error

SMALL = (
    "--hidden",
    "16",
    "--batch-size",
    "16",
    "--updates",
    "40",
    "--log-every",
    "20",
    "--target-update-period",
    "20",
)
PAPER = ("--algorithm", "castro2020", *SMALL)
TINY = learned.PairQConfig(learned.MetricNetwork((4,), num_groups=2, group_size=2), batch_size=4)
WORLD = "mirrored-rooms-policy"
GRIDWORLD = Path(__file__).parents[2] / "docs" / "reports" / "gridworld"


def walk(steps: int = 60) -> Transitions:
    """A point that walks to the right until it falls off; every tenth step is an end."""
    x = np.linspace(-1, 1, steps)
    ended = np.arange(steps) % 10 == 9
    seen = np.column_stack([x, x**2])
    return Transitions(seen, np.zeros(steps, int), np.sign(x), seen + 0.1, ended)


def ids() -> Transitions:
    """Three states that are walked through, each action of each six times."""
    once = [[0, 0, 1, 1, 2, 2], [0, 1, 0, 1, 0, 1], [0, 1, 1, 0, 0, 2], [1, 2, 2, 0, 0, 2]]
    s, a, r, t = np.tile(once, 6)
    return Transitions(s, a, r, t, np.zeros(36, bool), names=("a", "b", "c"))


def lines_of(result: Result) -> dict[str, str]:
    """The report, by the first word of each line."""
    assert result.code == 0, result.err
    assert all(line.startswith("warning: ") for line in result.err.splitlines())
    found = [line.split(maxsplit=1) for line in result.out.splitlines()]
    return {words[0]: words[1] for words in found if words[0] not in ("next:", "saved")}


def following(out: str) -> list[list[str]]:
    """The commands that a report offers."""
    found = re.findall(r"^next: \S*bisimetric (.*?)(?:, which is exact)?$", out, re.MULTILINE)
    return [shlex.split(line) for line in found]


def test_a_world_is_learned_saved_reported_and_drawn(run: Run) -> None:
    files = ("d.safetensors", "d.npz", "c.png", "m.png", "h.svg")
    words = ("--discount", "0.9", "-o", files[0], "--matrix", files[1], "--plot-training", files[2])
    drawn = ("--plot-map", files[3], "--plot-heatmap", files[4], "--from", "4,3")
    result = run("learned", "on-policy", WORLD, *SMALL, "--noise", "0.1", *words, *drawn)
    lines = lines_of(result)
    mdp = worlds.load(WORLD, discount=0.9)
    d, table = learned.LearnedDistance.load(files[0], mdp), Distance.load(files[1])
    np.testing.assert_array_equal(d.to_distance().values, table.values)
    assert (table.kind, table.error, table.metadata["world"]) == ("on_policy", np.inf, WORLD)
    truth = exact.on_policy(mdp)
    far = np.abs(d.values - truth.values).max()
    assert lines["world"] == f"{WORLD}: 31 states, 4 actions, deterministic, discount 0.9"
    assert lines["distance"].endswith("the on-policy distance: an approximation, nothing is proven")
    assert lines["policy"] == "the world's own"
    assert "pair Q-learning" in lines["algorithm"]
    sizes = "64 groups of 4 coordinates per action, 2 networks"
    assert lines["network"] == f"metric: 2 features per state, hidden layers 16, {sizes}, seed 0"
    assert re.fullmatch(r"40, in [\d.]+ s, [\d,]+ per second", lines["updates"])
    assert lines["device"] == jax.devices()[0].platform
    assert lines["horizon"] == "at most 1.9 of 10 steps, 1 target update"
    assert lines["loss"] == f"{d.history['loss'][-1]:.3g}, the mean of the last 20 updates"
    errors = f"largest error {far:.3g}, largest exact distance {truth.values.max():.3g}; "
    errors += f"normalised error {d.history['normalised'][-1]:.3g}, "
    assert lines["reference"].startswith(errors)
    assert lines["largest"].startswith(f"{table.values.max():.6g}, between ")
    quality = d.quality(
        learned.source_from_mdp("on_policy", mdp, scaling=d.scaling, noise=0.1, noise_clip=3 * 0.1)
    )
    assert lines["symmetry"].endswith(" is at most 0, by construction")
    assert lines["identity"].endswith(" is at most 0, by construction")
    assert f"at most {quality.triangle:.3g}, by construction up to" in lines["triangle"]
    assert lines["residual"].endswith(f" {quality.residual:.3g}")
    for name in files:
        assert f"saved      {name}\n" in result.out
        assert os.path.getsize(name) > 0
    assert "warning: " in result.err
    assert "1,380" in result.err
    assert 'LearnedDistance.load("d.safetensors"); d(x, y)\n' in result.out
    explained, solved = following(result.out)
    assert "not proven" in run(*explained).out
    assert solved == ["exact", "on-policy", WORLD, "--discount", "0.9"]
    assert run(*solved).code == 0
    shown = run("show", "d.npz").out
    assert "learned    by a network: an approximation, nothing is proven\n" in shown
    assert "policy     the world's own\n" in shown


@pytest.mark.slow
def test_the_algorithm_of_castro_2020_is_reported(run: Run) -> None:
    result = run("learned", "on-policy", WORLD, *PAPER, "--discount", "0.9", "-o", "d.safetensors")
    lines = lines_of(result)
    mdp = worlds.load(WORLD, discount=0.9)
    d = learned.LearnedDistance.load("d.safetensors", mdp)
    assert isinstance(d.network, learned.castro2020.PairNetwork)
    assert lines["algorithm"] == "Castro (2020)"
    assert lines["network"] == "2 features per state, hidden layers 16, seed 0"
    assert lines["horizon"] == "1.1 of 10 steps, beta 0.1"
    quality = d.quality(learned.source_from_mdp("on_policy", mdp, scaling=d.scaling))
    assert lines["symmetry"].endswith(f" at most {quality.symmetry:.3g}")
    assert lines["identity"].endswith(f" at most {quality.identity:.3g}, and should be 0")
    assert lines["triangle"].endswith(f" at most {quality.triangle:.3g}")
    assert quality.symmetry > 0


@pytest.mark.slow
def test_a_free_network_is_symmetric_and_no_more(run: Run) -> None:
    words = ("learned", "bisimulation", "pessimism", *SMALL, "--network", "free")
    lines = lines_of(run(*words, "-o", "d.safetensors"))
    network = lines["network"]
    assert network.startswith("free: ")
    assert network.endswith(" per state, hidden layers 16, 2 networks, seed 0")
    assert lines["symmetry"].endswith(" is at most 0, by construction")
    assert lines["identity"].endswith(", and should be 0")
    assert "construction" not in lines["triangle"]
    assert lines_of(run("show", "d.safetensors"))["network"] == network


def test_an_algorithm_has_defaults_and_flags_change_them() -> None:
    theirs = learned.castro2020.Castro2020Config(learned.castro2020.PairNetwork())
    for flags, settings, steps in (
        (LearnedTrainingOptions(), None, None),
        (LearnedTrainingOptions(updates="2k"), None, 2_000),
        (LearnedTrainingOptions(batch_size=256), learned.PairQConfig(), 24_000),
        (LearnedTrainingOptions(lookahead="inf"), learned.PairQConfig(lookahead=math.inf), 24_000),
        (
            LearnedTrainingOptions(network="free"),
            learned.PairQConfig(learned.FreeNetwork()),
            24_000,
        ),
        (LearnedTrainingOptions(algorithm="castro2020"), theirs, 100_000),
        (MicoTrainingOptions(), learned.PairTDConfig(), 24_000),
        (
            MicoTrainingOptions(network="angular", batch_size=8),
            learned.PairTDConfig(learned.MicoNetwork(parametrisation="angular"), batch_size=8),
            24_000,
        ),
        (
            LearnedTrainingOptions(
                hidden=(8, 4), batch_size=8, learning_rate=0.1, target_update_period=3, updates="2k"
            ),
            learned.PairQConfig(
                learned.MetricNetwork((8, 4)),
                batch_size=8,
                learning_rate=0.1,
                target_update_period=3,
            ),
            2_000,
        ),
        (
            MicoTrainingOptions(
                algorithm="castro2020",
                hidden=(8, 4),
                output_activation="relu",
                horizon_growth=0.5,
                batch_size=8,
            ),
            learned.castro2020.Castro2020Config(
                learned.castro2020.PairNetwork((8, 4), output_activation="relu"),
                horizon_growth=0.5,
                batch_size=8,
            ),
            100_000,
        ),
    ):
        found = build_arguments(flags)
        assert (found["config"], found["updates"]) == (settings, steps)
    for name, kind in (("pair-td", learned.mico), ("castro2020", learned.castro2020.on_policy)):
        steps = inspect.signature(kind).parameters["updates"].default
        assert parse_count("--updates", DEFAULT_UPDATES[name]) == steps
    assert parse_count("--updates", DEFAULT_UPDATES["pair-q"]) == defaults.DEFAULT_UPDATES


@pytest.mark.slow
def test_observations_are_learned_from(run: Run) -> None:
    walk().save("data.npz")
    result = run("learned", "on-policy", "data.npz", *SMALL, "-o", "d.safetensors")
    lines = lines_of(result)
    d = learned.LearnedDistance.load("d.safetensors")
    assert d.discount == 0.99
    assert lines["data"].endswith("observations (2,) float64, 1 action, discount 0.99")
    assert lines["policy"] == "that of the data"
    # Two numbers, and one for the end.
    assert lines["network"].startswith("metric: 3 features per state, hidden layers 16, ")
    assert lines["largest"].endswith(", among the pairs of 256 sampled transitions")
    assert lines["residual"].endswith(f" {d.quality(walk()).residual:.3g}")
    assert not {"reference", "stochastic", "world"} & lines.keys()
    assert d([0.0, 0.0], None) >= 0
    assert d.metadata["data"] in lines["data"]
    assert following(result.out) == []


@pytest.mark.slow
def test_ids_are_compared_with_the_exact_distance(run: Run) -> None:
    ids().save("data.npz")
    words = ("learned", "mico", "data.npz", *SMALL, "--discount", "0.5")
    Path("p.txt").write_text("0 1 0")
    result = run(*words, "--policy", "p.txt", "-o", "d.safetensors")
    lines = lines_of(result)
    truth = exact.on_policy(ids().to_mdp(discount=0.5), np.array([0, 1, 0]))
    far = np.abs(learned.LearnedDistance.load("d.safetensors").values - truth.values).max()
    assert lines["policy"] == "p.txt"
    assert lines["network"].startswith("mico: 3 features per state")
    assert lines["reference"].startswith(f"largest error {far:.3g}, largest exact distance ")
    assert "should be 0" not in lines["identity"]
    (solved,) = following(result.out)
    assert solved == shlex.split("exact mico data.npz --discount 0.5 --policy p.txt")
    assert run(*solved).code == 0


def test_reduced_mico_is_learned_and_compared(run: Run) -> None:
    result = run("learned", "reduced-mico", WORLD, *SMALL, "--matrix", "d.npz")
    lines = lines_of(result)
    truth = exact.reduced_mico(worlds.load(WORLD))
    found = Distance.load("d.npz")
    assert found.kind == "reduced_mico"
    np.testing.assert_allclose(np.diagonal(found.values), 0, atol=1e-4)
    far = np.abs(found.values - truth.values).max()
    assert lines["reference"].startswith(f"largest error {far:.3g}, largest exact distance ")
    assert lines["triangle"].startswith("holds for the square root")
    assert "residual" not in lines
    assert ["exact", "reduced-mico", WORLD] in following(result.out)


@pytest.mark.slow
def test_states_without_transitions_are_not_compared(run: Run) -> None:
    data = ids()
    ended = (data.observations == 1) & (data.actions == 1)
    following = np.where(ended, 3, data.next_observations)
    Transitions(data.observations, data.actions, data.rewards, following, ended).save("data.npz")
    lines = lines_of(run("learned", "bisimulation", "data.npz", *SMALL))
    assert lines["reference"].endswith(", among the 3 exited states")
    assert "policy" not in lines


@pytest.mark.slow
def test_stochastic_data_is_reported(run: Run) -> None:
    ids().save("data.npz")
    result = run("learned", "on-policy", "data.npz", *SMALL)
    assert "different outcomes" in result.err
    assert "reference" not in lines_of(result)


@pytest.mark.slow
def test_the_same_seed_gives_the_same_network(run: Run) -> None:
    tables = []
    for key in ("1", "1", "2"):
        words = ("learned", "bisimulation", "pessimism", *SMALL, "--seed", key)
        assert run(*words, "--matrix", "d.npz").code == 0
        tables.append(Distance.load("d.npz").values)
    assert np.array_equal(tables[0], tables[1])
    assert not np.array_equal(tables[0], tables[2])


@pytest.mark.slow
def test_a_run_resumes_from_its_checkpoint(run: Run) -> None:
    words = ("learned", "bisimulation", "pessimism", *PAPER[:6], "--log-every", "20")
    assert run(*words, "--updates", "6e1", "-o", "long.safetensors").code == 0
    assert run(*words, "--updates", "20", "--checkpoint", "run.safetensors").code == 0
    again = (*words, "--updates", "0.06k", "--resume", "run.safetensors")
    lines = lines_of(run(*again, "--plot-training", "c.png", "-o", "d.safetensors"))
    assert lines["updates"].startswith("60, 40 of them in this run, in ")
    long, short = (learned.LearnedDistance.load(f"{name}.safetensors") for name in ("long", "d"))
    assert np.array_equal(long.values, short.values)
    assert short.history["step"].tolist() == [20, 40, 60]
    assert_input_error(
        run(*words, "--updates", "10", "--resume", "run.safetensors"),
        "run.safetensors holds 20 updates and 10 are requested",
    )


@pytest.mark.slow
def test_a_resumed_run_keeps_its_decay(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("learned", "on-policy", WORLD, *SMALL, "--discount", "0.9")
    assert run(*words, "-o", "long.safetensors").code == 0
    with monkeypatch.context() as patched:
        interrupt_after(1, patched)
        assert run(*words, "--checkpoint", "run.safetensors").code == 130
    again = (*words, "--resume", "run.safetensors")
    lines = lines_of(run(*again, "-o", "d.safetensors"))
    assert lines["updates"].startswith("40, 20 of them in this run, in ")
    long, short = (learned.LearnedDistance.load(f"{name}.safetensors") for name in ("long", "d"))
    assert np.array_equal(long.values, short.values)
    assert_input_error(
        run(*again, "--updates", "60"), "a run of 40 updates", "resume it with as many"
    )
    assert_input_error(
        run(*again, "--algorithm", "castro2020"),
        "run.safetensors is of --algorithm pair-q and here it is castro2020; resume it",
    )
    assert_input_error(run(*again, "--network", "free"), "metric and here it is free")
    assert_input_error(run(*again, "--hidden", "8"), "run.safetensors", "[16]")


@pytest.mark.slow
def test_patience_ends_a_run_early(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_fit, "_has_stalled", lambda fit, patience: patience == 7)
    words = ("learned", "bisimulation", "pessimism", *SMALL, "--patience", "7")
    lines = lines_of(run(*words))
    assert lines["updates"].startswith("20, in ")
    assert lines["updates"].endswith(", stopped early: the loss improved no more")


def interrupt_after(calls: int, monkeypatch: pytest.MonkeyPatch) -> None:
    honest, counter = training.advance, itertools.count(1)

    def advanced(*given: Any, **options: Any) -> Any:
        if next(counter) > calls:
            raise KeyboardInterrupt
        return honest(*given, **options)

    monkeypatch.setattr(training, "advance", advanced)


@pytest.mark.slow
def test_ctrl_c_names_the_checkpoint_and_how_to_resume(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("learned", "bisimulation", "pessimism", *SMALL)
    with monkeypatch.context() as patched:
        interrupt_after(1, patched)
        code, out, err = run(*words, "--checkpoint", "my run.safetensors", "-o", "d.safetensors")
    assert (code, out) == (130, "")
    found = re.fullmatch(r"bisimetric: interrupted; resume with `(.*)`\.\n", err)
    assert found is not None
    lines = lines_of(run(*shlex.split(found[1])[1:]))
    assert lines["updates"].startswith("40, 20 of them in this run, in ")
    with monkeypatch.context() as patched:
        interrupt_after(0, patched)
        code, _, err = run(*words)
    assert code == 130
    assert err.endswith("; --checkpoint RUN.safetensors would save such a run.\n")


def test_divergence_is_one_line_and_keeps_the_checkpoint(run: Run) -> None:
    data = walk()
    dataclasses.replace(data, rewards=1e30 * data.rewards).save("data.npz")
    words = ("learned", "on-policy", "data.npz", *PAPER, "--checkpoint", "run.safetensors")
    assert_input_error(
        run(*words, "-o", "d.safetensors"),
        "not finite",
        "run.safetensors",
        "smaller",
    )
    assert sorted(os.listdir()) == ["data.npz", "run.safetensors"]
    assert "updates    0\n" in run("show", "run.safetensors").out


@pytest.mark.slow
def test_a_dead_network_is_called_so() -> None:
    mdp = worlds.load("pessimism")
    found = learned.bisimulation(mdp, updates=1, config=TINY)
    course = learned_report.TrainingSummary(mdp, None, None, None, 1, 0, 0.0)
    told = {**found.metadata, "world": "pessimism"}
    history = {**found.history, "loss": np.ones(1)}
    zeros = jax.tree.map(np.zeros_like, found.parameters)
    dead = dataclasses.replace(found, parameters=zeros, metadata=told, history=history)
    lines = [*map(str, learned_report.describe_learned(dead, dead.to_distance(), course))]
    assert lines[-1].startswith("dead ")
    quiet = dataclasses.replace(dead, history={**dead.history, "loss": np.zeros(1)})
    report = map(str, learned_report.describe_learned(quiet, dead.to_distance(), course))
    assert "dead" not in " ".join(report)


BATCH = "batch size 16, target update period 20"
PAIR_Q = f"Adam 0.001, 500 warm-up updates, cosine decay, {BATCH}"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "optimiser"),
    [("castro2020", f"Adam 0.001, {BATCH}, horizon growth 0.9"), ("pair-q", PAIR_Q)],
)
def test_show_describes_a_learned_file(run: Run, algorithm: str, optimiser: str) -> None:
    small = (*SMALL, "--algorithm", algorithm)
    words = ("learned", "bisimulation", "pessimism", *small, "--checkpoint", "run.safetensors")
    assert run(*words, "-o", "d.safetensors").code == 0
    lines = lines_of(run("show", "d.safetensors", "--plot-training", "c.png"))
    assert lines["file"] == "d.safetensors: a learned distance"
    assert lines["from"] == "pessimism"
    assert lines["updates"] == "40"
    assert lines["optimiser"] == optimiser
    assert lines["reference"].startswith("largest error ")
    kept = lines_of(run("show", "run.safetensors"))
    assert kept["file"] == "run.safetensors: a checkpoint of a training run"
    for key in (
        "distance",
        "discount",
        "algorithm",
        "network",
        "updates",
        "horizon",
        "loss",
        "optimiser",
    ):
        assert kept[key] == lines[key]
    assert (kept["reference"], kept["jax"]) == (lines["reference"], lines["jax"])
    assert os.path.getsize("c.png") > 0
    assert_input_error(
        run("explain", "d.safetensors", "s", "t"), "d.safetensors is a network, not a dist"
    )
    assert_input_error(
        run("show", "d.safetensors", "--plot-map", "m.png"), "cannot draw m.png", "--matrix d.npz"
    )
    assert_input_error(
        run("show", "d.safetensors", "--plot-training", "c.xyz"), "cannot save a figure as c.xyz"
    )
    assert run("exact", "bisimulation", "pessimism", "-o", "d.npz").code == 0
    assert_input_error(
        run("show", "d.npz", "--plot-training", "x.png"),
        "--plot-training is for a network",
        "d.npz is none",
    )
    assert_input_error(
        run("learned", "bisimulation", "run.safetensors"), "`bisimetric show run.safetensors`"
    )
    whole = Path("d.safetensors").read_bytes()
    Path("short.safetensors").write_bytes(whole[:-9])
    assert_input_error(run("show", "short.safetensors"), "short.safetensors")
    Path("none.safetensors").write_bytes(whole[:9])
    assert read_label(Path("none.safetensors")) is None
    assert_input_error(run("show", "none.safetensors"), "none.safetensors")


@pytest.mark.slow
def test_files_without_a_network_name_are_of_castro_2020(run: Run) -> None:
    for path in sorted(GRIDWORLD.glob("*.safetensors")):
        lines = lines_of(run("show", str(path)))
        assert lines["algorithm"] == "Castro (2020)"
        assert lines["network"].startswith("2 features per state, hidden layers 729, seed 0, 1, ")
        assert lines["horizon"].endswith(", beta 1")
    words = ("learned", "bisimulation", "pessimism", *PAPER, "--checkpoint", "run.safetensors")
    assert run(*words).code == 0
    network = lines_of(run("show", "run.safetensors"))["network"]
    tensors, about = files.read_tensors("run.safetensors", files.RUN_FORMAT, "run")
    old = {name: each for name, each in about.items() if name not in ("form", "features", "of")}
    files.write_tensors("run.safetensors", tensors, old)
    assert lines_of(run("show", "run.safetensors"))["network"] == network


@pytest.mark.parametrize(
    ("words", "complaints"),
    [
        ("pessimism --updates 0", ("--updates is 0 and must be a whole number",)),
        ("pessimism --updates many", ("--updates is many and must be",)),
        ("pessimism --log-every 0", ("--log-every is 0",)),
        ("pessimism --hidden 16 0", ("--hidden is 16 0 and must be whole numbers",)),
        ("pessimism --batch-size 1", ("--batch-size is 1 and must be a whole number, at least 2",)),
        ("pessimism --learning-rate -1", ("--learning-rate is -1.0",)),
        ("pessimism --target-update-period 0", ("--target-update-period is 0",)),
        (
            "pessimism --horizon-growth 1",
            ("--horizon-growth is for --algorithm castro2020",),
        ),
        (
            "pessimism --output-activation relu",
            ("--output-activation is for --algorithm castro2020",),
        ),
        (
            "pessimism --algorithm castro2020 --horizon-growth 1",
            ("--horizon-growth is 1.0 and must be below 1",),
        ),
        (
            "pessimism --algorithm castro2020 --network free",
            ("--network is for --algorithm pair-q",),
        ),
        ("pessimism --network free --hidden 8 8", ("--hidden is 8 8", "has one hidden layer")),
        ("pessimism --patience 0", ("--patience is 0",)),
        ("pessimism --seed -1", ("--seed is -1",)),
        ("pessimism --noise -1", ("noise is -1.0",)),
        ("pessimism --discount 1", ("discount is 1.0",)),
        ("data.npz --discount 1", ("discount is 1.0",)),
        ("data.npz --set a=1", ("data.npz holds transitions, which --set cannot change",)),
        ("data.npz --noise 1", ("noise is for the states of an MDP",)),
        ("data.npz --matrix d.npz", ("cannot save d.npz", "data.npz holds transitions")),
        ("data.npz --plot-map m.png", ("cannot save m.png", "data.npz holds transitions")),
        (
            "data.npz --batch-size 99",
            ("--batch-size is 99", "60", "collect more"),
        ),
        ("alone.npz", ("alone.npz has no two transitions", "`bisimetric learned on-policy alone")),
        ("pessimism -o d.npz", ("cannot save a network as d.npz", "--matrix d.npz")),
        ("pessimism --matrix d.safetensors", ("the name must end in .npz",)),
        ("pessimism --plot-training c.xyz", ("cannot save a figure as c.xyz",)),
        ("pessimism --plot-map m.xyz", ("cannot save a figure as m.xyz",)),
        ("pessimism --from z --plot-map m.png", ("no state 'z'",)),
        ("pessimism --plot-training c.png --plot-map c.png", ("c.png is given twice",)),
        ("pessimism -o none/d.safetensors", ("make the folder none first",)),
        ("pessimism --checkpoint none/run.safetensors", ("make the folder none first",)),
        ("pessimism --resume none.safetensors", ("none.safetensors: there is no such file",)),
        ("pessimism --resume data.npz", ("data.npz",)),
        (
            "duplicated-grid --algorithm pair-q",
            ("duplicated-grid has several successors", "`bisimetric exact bisi"),
        ),
        (
            "duplicated-grid --algorithm model-based --lookahead 3",
            ("--lookahead is not for --algorithm model-based",),
        ),
        ("none.npz", ("none.npz: there is no such file",)),
        ("empty.npz", ("empty.npz",)),
        ("nowhere", ("there is no world 'nowhere'",)),
    ],
)
def test_mistakes_are_one_line_and_leave_nothing(
    run: Run, words: str, complaints: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.which", lambda name: name)
    walk().save("data.npz")
    Transitions([0, 1, 2], [0, 1, 2], [0, 1, 2], [1, 2, 0], [False] * 3).save("alone.npz")
    Path("empty.npz").touch()
    before = sorted(os.listdir())
    assert_input_error(run("learned", "bisimulation", *words.split()), *complaints)
    assert sorted(os.listdir()) == before


def test_mistakes_with_policies_files_and_devices(run: Run) -> None:
    walk().save("data.npz")
    Path("p.txt").write_text("0 1")
    for words, complaint in (
        ("data.npz --policy optimal", "--policy optimal: data has no such policy"),
        ("data.npz --policy none.txt", "none.txt: there is no such file"),
        ("data.npz --policy p.txt", "actions, one per"),
        ("pessimism --policy own", "this world has no policy"),
    ):
        assert_input_error(run("learned", "on-policy", *words.split()), complaint)
    short = ("learned", "mico", "pessimism", *SMALL[:4], "--log-every", "20", "--updates", "20")
    assert run(*short, "--checkpoint", "run.safetensors").code == 0
    resumed = (*short, "--resume", "run.safetensors")
    assert_input_error(run(*resumed, "--seed", "1"), "run.safetensors", "[0]")
    assert_input_error(
        run(*resumed, "-o", "run.safetensors"), "run.safetensors is read by this command"
    )
    if jax.default_backend() == "cpu":
        assert_input_error(run(*short, "--device", "gpu"), "gpu", "'bisimetric[gpu]'")


@pytest.mark.parametrize(
    "words",
    [
        "bisimulation",
        "bisimulation pessimism --foo",
        "bisimulation pessimism --device tpu",
        "bisimulation pessimism --algorithm mine",
        "mico pessimism --algorithm pair-q",
        "mico pessimism --network metric",
    ],
)
def test_words_that_cannot_be_parsed(run: Run, words: str) -> None:
    code, out, err = run("learned", *words.split())
    assert (code, out) == (2, "")
    assert "Traceback" not in err


def in_python(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)


@pytest.mark.parametrize("missing", ["jax", "optax", "safetensors"])
def test_without_the_packages_it_says_what_to_install(missing: str, tmp_path: Path) -> None:
    code = f"""
import sys
sys.modules[{missing!r}] = None
from bisimetric.cli import main
sys.exit(main(["learned", "bisimulation", "pessimism", "-o", "d.safetensors"]))
"""
    done = in_python(code, tmp_path)
    said = f"bisimetric: learned: {missing} is not installed; pip install 'bisimetric[learn]'.\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", said)


@pytest.mark.parametrize("words", [["learned"], ["learned", "on-policy"]])
def test_help_imports_nothing_heavy(words: list[str], tmp_path: Path) -> None:
    code = f"""
import sys
from bisimetric.cli import main
try:
    main([*{words!r}, "--help"])
except SystemExit:
    pass
heavy = ("numpy", "scipy", "numba", "matplotlib", "jax", "safetensors")
print([name for name in heavy if name in sys.modules], file=sys.stderr)
"""
    done = in_python(code, tmp_path)
    assert "  bisimetric learned on-policy data.npz --hidden 64" in done.stdout
    assert done.stderr.strip() == "[]"


def test_a_horizon_of_one_step_is_covered() -> None:
    pair_q = {"target_update_period": 7, "warm_up": 11, "num_networks": 2, "updates": 18}
    text = network_report.describe_horizon(pair_q, 0.0).text
    assert text == "at most 1 of 1 steps, 2 target updates"
