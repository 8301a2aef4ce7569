"""`bisimetric sampled`: distances of worlds and data, checkpoints, and errors."""

from __future__ import annotations

import itertools
import os
import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from bisimetric import MDP, Distance, InputError, Transitions, exact, sampled, worlds
from bisimetric.cli import data_report
from bisimetric.cli.commands import sampled as command
from bisimetric.cli.options import parse_count
from bisimetric.sampled.samplers import SAMPLERS
from tests.commands import FIGURE_FLAGS, Run, assert_input_error

KINDS = ("bisimulation", "on-policy")
WORLD = "mirrored-rooms-policy"


def every_step(mdp: MDP) -> Transitions:
    """Each action of each state, once."""
    s, a = (each.ravel() for each in np.indices(mdp.R.shape))
    return Transitions(
        s,
        a,
        mdp.R[s, a],
        mdp.next_state[s, a],
        np.zeros(len(s), bool),
        names=mdp.names,
        positions=mdp.positions,
    )


def read(path: str) -> Distance:
    return Distance.load(path)


def following(out: str) -> list[list[str]]:
    """The commands that a report offers."""
    found = re.findall(r"^next: (?:collect more; or )?\S*bisimetric (.*)$", out, re.MULTILINE)
    return [shlex.split(line) for line in found]


@pytest.mark.parametrize("source", ["world", "data"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_table_of_a_world_and_of_data(run: Run, kind: str, source: str, tmp_path: Path) -> None:
    mdp = worlds.load(WORLD, discount=0.9)
    assert mdp.policy is not None
    if source == "data":
        np.savetxt(tmp_path / "p.txt", mdp.policy, fmt="%d")
        every_step(mdp).save(tmp_path / "data.npz")
    world = WORLD if source == "world" else "data.npz"
    policy = ["--policy", "p.txt"] if source == "data" and kind == "on-policy" else []
    code, out, err = run(
        "sampled", kind, world, "--discount", "0.9", *policy, "-o", "d.npz", *FIGURE_FLAGS
    )
    assert (code, err) == (0, "")
    d = read("d.npz")
    verb = kind.replace("-", "_")
    expected: Distance = getattr(exact, verb)(mdp, tol=1e-9)
    far = np.abs(d.values - expected.values).max()
    assert far <= d.error + expected.error
    assert d.error <= 1e-3
    assert (d.kind, d.metadata["world"], d.metadata["method"]) == (verb, world, "sampled")
    lines = dict(line.split(maxsplit=1) for line in out.splitlines() if "next" not in line)
    assert lines["sampler"] == "uniform, seed 0"
    assert lines["steps"] == f"{d.metadata['steps']:,}, tol was reached"
    assert lines["largest"].startswith(f"{d.values.max():.6g}, between ")
    assert lines["error"] == f"at most {d.error:.2g}, proven"
    assert lines["reference"] == f"largest difference from the exact distance: {far:.2g}"
    assert ("policy" in lines) == (kind == "on-policy")
    assert "coverage" not in lines
    if source == "world":
        assert lines["world"] == f"{WORLD}: 31 states, 4 actions, deterministic, discount 0.9"
    else:
        assert lines["data"] == "data.npz: 124 steps, 1 episode, 31 states, 4 actions, discount 0.9"
        assert d.metadata["data"] == "124 steps, 1 episode, 31 states, 4 actions"
    for name in ("d.npz", "m.png", "h.svg", "a.pdf"):
        assert f"saved      {name}\n" in out
        assert os.path.getsize(name) > 0
    (explained,) = following(out)
    assert explained[:2] == ["explain", "d.npz"]
    assert run(*explained).out == str(d.explain(explained[2], explained[3])) + "\n"
    code, out, _ = run("show", "d.npz", "--from", "4,3")
    assert code == 0
    assert "stopped    tol\n" in out
    assert f"world      {world}: 31 states, " in out


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_seed_gives_the_same_distances(run: Run, kind: str) -> None:
    tables = []
    for key in ("1", "1", "2"):
        words = ("sampled", kind, WORLD, "--steps", "3000", "--seed", key, "-o", "d.npz")
        assert run(*words).code == 0
        tables.append(read("d.npz").values)
    assert np.array_equal(tables[0], tables[1])
    assert not np.array_equal(tables[0], tables[2])


def test_every_sampler_has_its_name(run: Run) -> None:
    assert tuple(SAMPLERS) == command.SAMPLERS
    for name in SAMPLERS:
        words = ("sampled", "bisimulation", "pessimism", "--sampler", name, "-o", "d.npz")
        assert f"sampler    {name}, seed 0\n" in run(*words).out
        assert read("d.npz").metadata["sampler"] == name


@pytest.mark.parametrize("word", ["2000", "2_000", "2e3", "2k", "0.002M", "0.000002G"])
def test_steps_may_be_written_in_several_ways(run: Run, word: str) -> None:
    out = run("sampled", "bisimulation", WORLD, "--steps", word).out
    assert "steps      2,000, the requested number\n" in out


@pytest.mark.parametrize(
    "word", ["-5", "many", "2.5", "nan", "inf", "", "k", "1e999999999999", "1e30", "1e-400", "2kk"]
)
def test_what_is_no_number_of_steps(word: str) -> None:
    said = re.escape(word) or "empty"
    with pytest.raises(InputError, match=f"--steps is {said} and must be a whole"):
        parse_count("--steps", word)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sampler", ["trajectories", "prioritised"])
def test_a_resumed_run_equals_an_uninterrupted_one(run: Run, kind: str, sampler: str) -> None:
    words = ("sampled", kind, WORLD, "--seed", "4", "--sampler", sampler)
    assert run(*words, "--steps", "7000", "-o", "long.npz").code == 0
    out = run(*words, "--steps", "3000", "--checkpoint", "run.npz").out
    assert "checkpoint run.npz: --resume continues from it\n" in out
    assert run(*words, "--steps", "7k", "--resume", "run.npz", "-o", "d.npz").code == 0
    assert read("d.npz").metadata["steps"] == 7000
    assert np.array_equal(read("d.npz").values, read("long.npz").values)


def test_a_time_limit_stops_the_run(run: Run) -> None:
    code, out, _ = run("sampled", "bisimulation", WORLD, "--seconds", "0.05", "-o", "d.npz")
    assert code == 0
    made = read("d.npz").metadata
    assert made["stopped"] == "seconds"
    assert made["seconds"] >= 0.05
    assert f"steps      {made['steps']:,}, the time limit\n" in out


def test_distances_that_miss_the_tolerance_are_saved(run: Run) -> None:
    words = ("sampled", "bisimulation", WORLD, "--steps", "5000", "--tol", "1e-9")
    assert_input_error(run(*words), "tol=1e-09", "-o d.npz would save the distances so far.")
    assert not os.listdir()
    assert_input_error(
        run(*words, "-o", "d.npz"),
        "tol=1e-09",
        "the distances so far are saved in d.npz.",
    )
    saved = read("d.npz")
    assert (saved.metadata["steps"], saved.metadata["world"]) == (5000, WORLD)
    assert saved.values.max() > 0
    assert run("show", "d.npz").code == 0


def interrupt_after(calls: int, monkeypatch: pytest.MonkeyPatch) -> None:
    honest, counter = sampled.SampledRun.advance, itertools.count(1)

    def advance(self: sampled.SampledRun, steps: int) -> float:
        rise = honest(self, steps)
        if next(counter) == calls:
            raise KeyboardInterrupt
        return rise

    monkeypatch.setattr(sampled.SampledRun, "advance", advance)


def test_ctrl_c_names_the_checkpoint_and_how_to_resume(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("sampled", "bisimulation", "open-grid", "--set", "rows=4", "columns=5", "--steps")
    assert run(*words, "3e5", "-o", "long.npz").code == 0
    assert run(*words, "1000", "--checkpoint", "first.npz").code == 0
    with monkeypatch.context() as patched:
        interrupt_after(2, patched)
        code, out, err = run(
            *words, "3e5", "--resume", "first.npz", "--checkpoint", "my run.npz", "-o", "d.npz"
        )
    assert (code, out) == (130, "")
    assert not os.path.exists("d.npz")
    found = re.fullmatch(r"bisimetric: interrupted; resume with `(.*)`\.\n", err)
    assert found is not None
    again = shlex.split(found[1])
    assert "first.npz" not in again
    assert again[-2:] == ["--resume", "my run.npz"]
    assert run(*again[1:]).code == 0
    assert np.array_equal(read("d.npz").values, read("long.npz").values)


def test_ctrl_c_without_a_checkpoint(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupt_after(1, monkeypatch)
    code, _, err = run("sampled", "bisimulation", WORLD)
    assert code == 130
    assert err.endswith("; --checkpoint RUN.npz would save such a run.\n")

    def interrupted(*args: object, **options: object) -> None:
        raise KeyboardInterrupt

    Path("run.npz").write_text("of another run")
    monkeypatch.setattr(sampled, "bisimulation", interrupted)
    code, _, err = run("sampled", "bisimulation", WORLD, "--checkpoint", "run.npz")
    assert (code, err) == (130, "bisimetric: interrupted; no file is incomplete.\n")


def test_incomplete_coverage_is_reported_with_a_remedy(run: Run) -> None:
    steps = ([0, 0, 1], [0, 1, 0], [0, 1, 2], [1, 0, 2], [False] * 3)
    Transitions(*map(np.array, steps), num_states=3, names=("a", "b", "c")).save("x.npz")
    code, out, err = run("sampled", "bisimulation", "x.npz", "--discount", "0.5", "-o", "d.npz")
    assert (code, err) == (0, "")
    assert "error      unknown: lower bounds for all 3 pairs\n" in out
    assert "3 of 6 state-action pairs\n" in out
    assert "reference" not in out
    explained, solved = following(out)
    assert "next: collect more; or " in out
    assert solved == shlex.split("exact bisimulation x.npz --discount 0.5 --set unseen=missing")
    assert run(*explained).code == run(*solved).code == 0
    out = run("show", "d.npz", "--from", "a", "--nearest", "1").out
    assert "nearest to a:\n  c  0 or more\n" in out


def test_terminal_states_need_no_transitions(run: Run) -> None:
    steps = ([0, 0, 1, 1], [0, 1, 0, 1], [0, 1, 2, 0], [1, 2, 0, 3], [False, True, False, True])
    Transitions(*map(np.array, steps)).save("x.npz")
    out = run("sampled", "bisimulation", "x.npz", "-o", "d.npz").out
    d = read("d.npz")
    assert ", proven, among 3 visited states\n" in out
    assert "reference  largest difference from the exact distance: " in out
    assert len(following(out)) == 1
    assert run("exact", "bisimulation", "x.npz", "-o", "e.npz").code == 0
    for s, t in ((0, 1), (0, 4), (1, 4)):
        low, high = d.bounds(s, t)
        assert low - 1e-6 <= read("e.npz")(s, t) <= high + 1e-6


@pytest.mark.parametrize("ending", ["txt", "npy"])
def test_a_policy_selects_transitions(run: Run, ending: str) -> None:
    mdp = worlds.load("pessimism", discount=0.5)
    data = every_step(mdp)
    data.save("all.npz")
    policy = np.array([0, 1, 0])
    data[policy[np.asarray(data.states)] == data.actions].save("one.npz")
    np.savetxt("p.txt", policy) if ending == "txt" else np.save("p.npy", policy)
    expected = exact.on_policy(mdp, policy)
    assert_input_error(
        run("sampled", "on-policy", "all.npz"),
        "all.npz takes action 0",
        "policy",
        "`bisimetric exact",
    )
    for words in (("all.npz", "--policy", f"p.{ending}"), ("one.npz",)):
        code, out, _ = run("sampled", "on-policy", *words, "--discount", "0.5", "-o", "d.npz")
        assert code == 0
        assert f"policy     {words[-1] if len(words) > 1 else 'that of the data'}\n" in out
        assert "reference  " in out
        np.testing.assert_allclose(
            read("d.npz").values, expected.values, atol=read("d.npz").error + expected.error
        )


def test_a_policy_may_leave_out_the_terminal_state(run: Run) -> None:
    steps = ([0, 0, 1, 1], [0, 1, 0, 1], [0, 0, 1, 2], [1, 0, 0, 0], [False, False, True, True])
    Transitions(*map(np.array, steps)).save("x.npz")
    Path("p.txt").write_text("0 1")
    tables = []
    for how in ("exact", "sampled"):
        assert run(how, "on-policy", "x.npz", "--policy", "p.txt", "-o", "d.npz").code == 0
        tables.append(read("d.npz"))
    assert tables[0].mdp.names == ("0", "1", "end")
    one, other = tables
    np.testing.assert_allclose(one.values, other.values, atol=one.error + other.error)


def test_the_reference_is_computed_where_it_is_cheap(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("sampled", "bisimulation", WORLD, "--steps", "2000")
    assert "reference  " in run(*words).out
    monkeypatch.setattr(data_report, "MAX_REFERENCE_STATES", 30)
    assert "reference" not in run(*words).out


def test_the_reference_may_miss_its_tolerance() -> None:
    mdp = worlds.load(WORLD, discount=0.99999)
    found = data_report.compute_reference("bisimulation", mdp, None, None)
    assert found is not None
    assert data_report.REFERENCE_TOL < found.distance.error < 1e-3
    assert (
        data_report.compute_reference("bisimulation", worlds.load("duplicated-grid"), None, None)
        is None
    )
    halves = np.full(mdp.R.shape, 1 / mdp.num_actions)
    assert data_report.compute_reference("on_policy", mdp, halves, None) is None
