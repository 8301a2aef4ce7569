"""`bisimetric sampled` and bad input: one line on stderr, exit code 2, nothing left behind."""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
import pytest

from bisimetric import Transitions
from tests.commands import Run, assert_input_error


@pytest.fixture(autouse=True)
def files(run: Run) -> None:
    """Good and bad ones, in the folder that the commands run in."""
    s, a, r, t = np.array([[0, 1, 2], [0, 0, 0], [0, 1, 2], [1, 1, 0]])
    never = [False] * 3
    Transitions(s, a, r, t, never).save("data.npz")
    Transitions(s, [0, 1, 2], r, t, never).save("alone.npz")
    Path("empty.npz").touch()
    Path("p.txt").write_text("0 1 9 1")
    Transitions([0, 1, 0], a, [0, 1, 0], [1, 1, 0], never).save("torn.npz")
    Transitions([0, 1, 0], a, [0, 1, 3], [1, 1, 1], never).save("paid.npz")
    observed = np.zeros((3, 2))
    Transitions(observed, a, r, observed, never).save("seen.npz")
    with np.load("data.npz") as archive:
        arrays = {name: archive[name] for name in archive.files}
    arrays["rewards"][2] = np.nan
    np.savez("nan.npz", **arrays)
    assert run("sampled", "bisimulation", "pessimism", "--checkpoint", "run.npz").code == 0


@pytest.mark.parametrize(
    ("words", "complaints"),
    [
        ("pessimism --sampler unifrom", ("no such sampler; did you mean 'uniform'?",)),
        ("pessimism --sampler x", ("Use one of uniform, trajectories, all-actions, prior",)),
        ("pessimism --steps -5", ("--steps is -5 and must be a whole number",)),
        ("pessimism --steps few", ("--steps is few and must be a whole number",)),
        ("pessimism --seconds 0", ("seconds is 0.0", "above 0")),
        ("pessimism --tol nan", ("tol is nan",)),
        ("pessimism --seed -1", ("--seed is -1",)),
        ("pessimism --discount 1", ("discount is 1.0",)),
        ("data.npz --discount 1", ("discount is 1.0",)),
        ("data.npz --set unseen=missing", ("data.npz holds transitions, which --set cannot",)),
        ("data.npz --from z", ("no state 'z'",)),
        ("pessimism --resume run.npz --discount 0.5", ("run.npz", "its discount is 0.9")),
        ("mirrored-rooms --resume run.npz --discount 0.9", ("run.npz", "its states is 3")),
        ("pessimism --set K=2 --resume run.npz", ("run.npz", "its transitions or their weights")),
        ("pessimism --resume run.npz --seed 1", ("run.npz", "seed is 0")),
        (
            "pessimism --resume data.npz",
            ("data.npz", "checkpoint", "write a new one"),
        ),
        ("pessimism --resume empty.npz", ("empty.npz", "checkpoint")),
        ("pessimism --resume none.npz", ("none.npz", "No such file")),
        ("pessimism --resume run.npz -o run.npz", ("run.npz is read by this command",)),
        ("pessimism --checkpoint d.npz -o d.npz", ("d.npz is given twice",)),
        ("pessimism --checkpoint none/run.npz", ("make the folder none first",)),
        ("pessimism -o none/d.npz", ("make the folder none first",)),
        ("data.npz -o none/d.npz", ("make the folder none first",)),
        ("pessimism --plot-map m.xyz", ("cannot save a figure as m.xyz",)),
        (
            "duplicated-grid",
            ("duplicated-grid has several successors", "`bisimetric exact bisimulation"),
        ),
        (
            "torn.npz --discount 0.5",
            (
                "state 0 under action 0 led to state 1 (step 0) and to state 0 (step 2)",
                "use `bisimetric exact bisimulation torn.npz --discount 0.5`",
            ),
        ),
        ("alone.npz", ("no two states took the same action",)),
        ("paid.npz", ("paid 0.0 (step 0) and paid 3.0 (step 2)",)),
        ("seen.npz", ("seen.npz has observations (2,) and no ids of states", "state_of=")),
        ("nan.npz", ("nan.npz", "rewards", "nan")),
        ("empty.npz", ("empty.npz",)),
        ("none.npz", ("none.npz: there is no such file",)),
        ("run.npz", ("run.npz",)),
    ],
)
def test_mistakes_are_one_line_and_leave_nothing(
    run: Run, words: str, complaints: tuple[str, ...]
) -> None:
    before = sorted(os.listdir())
    assert_input_error(run("sampled", "bisimulation", *words.split()), *complaints)
    assert sorted(os.listdir()) == before


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("data.npz --policy own", "--policy own: data has no such policy"),
        ("data.npz --policy optimal", "--policy optimal: data has no such policy"),
        ("data.npz --policy none.txt", "none.txt: there is no such file; use a .npy or .txt"),
        ("data.npz --policy p.txt", "must be (3,) actions"),
        ("pessimism --policy p.txt", "policy has shape (4,)"),
        ("torn.npz", "`bisimetric exact on-policy torn.npz`"),
        ("duplicated-grid --policy optimal", "`bisimetric exact on-policy duplicated-grid --pol"),
    ],
)
def test_mistakes_with_policies(run: Run, words: str, complaint: str) -> None:
    assert_input_error(run("sampled", "on-policy", *words.split(), "-o", "d.npz"), complaint)
    assert not os.path.exists("d.npz")


@pytest.mark.parametrize("words", ["", "pessimism --foo", "pessimism --seconds soon"])
def test_words_that_cannot_be_parsed(run: Run, words: str) -> None:
    code, out, err = run("sampled", "bisimulation", *words.split())
    assert (code, out) == (2, "")
    assert "Traceback" not in err


def test_remedies_name_commands_in_place_of_functions(run: Run) -> None:
    for words in ("bisimulation torn.npz", "on-policy torn.npz", "bisimulation duplicated-grid"):
        err = run("sampled", *words.split()).err
        assert not re.search(r"to_mdp|exact\.|policy=|checkpoint=", err)


@pytest.mark.parametrize(
    "words", ["-o data.npz", "--steps 9 --checkpoint data.npz", "-o ./data.npz"]
)
def test_what_is_read_is_not_written_over(run: Run, words: str) -> None:
    Transitions([0, 1], [0, 0], [0, 1], [0, 1], [False, False]).save("data.npz")
    before = Path("data.npz").read_bytes()
    assert_input_error(
        run("sampled", "bisimulation", "data.npz", *words.split()), "is read by this command"
    )
    assert_input_error(
        run("exact", "bisimulation", "data.npz", "-o", "data.npz"), "is read by this command"
    )
    assert Path("data.npz").read_bytes() == before
    both = ("--checkpoint", "r.npz", "-o", str(Path("r.npz").resolve()))
    assert_input_error(run("sampled", "bisimulation", "data.npz", *both), "is given twice")


def test_a_policy_under_which_nothing_ends(run: Run) -> None:
    ends = [False, False, True, True]
    Transitions([0, 1, 0, 1], [0, 0, 1, 1], [0, 1, 0, 0], [1, 0, 0, 0], ends).save("data.npz")
    Path("policy.txt").write_text("0\n0\n")
    result = run("sampled", "on-policy", "data.npz", "--policy", "policy.txt")
    assert (result.code, result.err) == (0, "")
