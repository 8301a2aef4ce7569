"""`bisimetric rollout`: what it collects, what it says of it, and the commands that it offers."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from bisimetric import Distance, DistanceBounds, Transitions, datasets, exact, worlds
from tests.commands import Run, assert_input_error

LAKE = ("rollout", "FrozenLake-v1", "--set", "is_slippery=False")


def following(out: str) -> list[list[str]]:
    """The commands that a report offers."""
    found = re.findall(r"^next: \S*bisimetric (.*)$", out, re.MULTILINE)
    return [shlex.split(line) for line in found]


def test_from_an_environment_to_distances(run: Run) -> None:
    code, out, err = run(*LAKE, "--steps", "5k", "--seed", "3", "-o", "data.npz")
    assert (code, err) == (0, "")
    data = Transitions.load("data.npz")
    same = datasets.rollout("FrozenLake-v1", steps=5000, seed=3, is_slippery=False)
    for name in ("states", "actions", "rewards", "next_states", "terminated", "truncated"):
        assert np.array_equal(getattr(data, name), getattr(same, name))
    episodes = len(list(data.episodes()))
    assert f"data       data.npz: 5,000 steps, {episodes} episodes, 16 states, 4 actions\n" in out
    assert "from       FrozenLake-v1, policy random, seed 3\n" in out
    assert "rewards    0 to 1\n" in out
    assert f"episodes   {data.terminated.sum()} terminated, 1 truncated\n" in out
    assert "states     16 of 16 visited, 11 exited\n" in out
    assert "seen       44 of 44 state-action pairs of the exited states\n" in out
    assert "saved      data.npz\n" in out
    offered = following(out)
    assert [words[:3] for words in offered] == [
        ["sampled", "bisimulation", "data.npz"],
        ["exact", "bisimulation", "data.npz"],
    ]
    tables = []
    for words in offered:
        assert run(*words).code == 0
        tables.append(Distance.load("d.npz"))
    low, high = tables[0].bounds(*np.indices((17, 17)))
    assert (low <= tables[1].values + tables[1].error).all()
    assert (tables[1].values <= high + tables[1].error).all()


def test_the_same_seed_gives_the_same_data(run: Run) -> None:
    taken = []
    for key in ("1", "1", "2"):
        assert run(*LAKE, "--steps", "300", "--seed", key, "-o", "data.npz").code == 0
        taken.append(Transitions.load("data.npz").actions)
    assert np.array_equal(taken[0], taken[1])
    assert not np.array_equal(taken[0], taken[2])


def test_episodes_and_their_length(run: Run) -> None:
    words = ("--episodes", "4", "--max-episode-steps", "3")
    assert run("rollout", "CliffWalking-v1", *words, "-o", "data.npz").code == 0
    data = Transitions.load("data.npz")
    assert [len(episode) for episode in data.episodes()] == [3] * 4
    assert run("rollout", "CliffWalking-v1", *words, "--steps", "5", "-o", "data.npz").code == 0
    assert len(Transitions.load("data.npz")) == 5


def test_ten_thousand_steps_by_default(run: Run) -> None:
    assert run(*LAKE, "-o", "data.npz").code == 0
    assert len(Transitions.load("data.npz")) == 10_000


def test_a_policy_is_followed_and_its_distance_offered(run: Run) -> None:
    mdp = worlds.load("FrozenLake-v1", is_slippery=False)
    policy = np.ones(16, int)
    np.savetxt("p.txt", policy, fmt="%d")
    code, out, _ = run(*LAKE, "--policy", "p.txt", "--steps", "100", "-o", "data.npz")
    assert code == 0
    data = Transitions.load("data.npz")
    assert (data.actions == 1).all()
    assert "from       FrozenLake-v1, policy p.txt, seed 0\n" in out
    assert "seen       3 of 12 state-action pairs of the exited states\n" in out
    offered = following(out)
    assert [words[:2] for words in offered] == [["sampled", "on-policy"], ["exact", "on-policy"]]
    expected = exact.on_policy(mdp, policy)
    for words in offered:
        assert run(*words).code == 0
        d = Distance.load("d.npz")
        assert d("0,0", "1,0") == pytest.approx(expected("0,0", "1,0"), abs=1e-3)


def test_an_environment_that_is_random_is_offered_to_exact_only(run: Run) -> None:
    out = run("rollout", "FrozenLake-v1", "--steps", "3000", "-o", "data.npz").out
    (words,) = following(out)
    assert words[:3] == ["exact", "bisimulation", "data.npz"]
    assert run(*words).code == 0
    assert_input_error(
        run("sampled", "bisimulation", "data.npz"), "`bisimetric exact bisimulation data.npz`"
    )


def test_unseen_actions_are_suggested_as_missing(run: Run) -> None:
    out = run(*LAKE, "--steps", "30", "-o", "data.npz").out
    assert following(out)[1][3:5] == ["--set", "unseen=missing"]
    assert run(*following(out)[1]).code == 0


def test_observations_without_ids(run: Run) -> None:
    code, out, _ = run("rollout", "CartPole-v1", "--episodes", "2", "-o", "data.npz")
    assert code == 0
    assert "observations (4,) float32, 2 actions\n" in out
    assert "states     no ids: distance matrices need them; see state_of" in out
    assert not following(out)
    assert_input_error(run("sampled", "bisimulation", "data.npz"), "no ids of states")


def test_a_room_of_minigrid_and_its_seed(run: Run) -> None:
    words = ("rollout", "MiniGrid-Empty-5x5-v0", "--set", "environment_seed=3", "--steps", "200")
    assert run(*words, "-o", "data.npz").code == 0
    data = Transitions.load("data.npz")
    assert data.names is not None
    assert set(data.names) <= {*(worlds.load("MiniGrid-Empty-5x5-v0", seed=3).names or ()), *GOALS}


GOALS = tuple(f"3,3 {way}" for way in ("north", "east", "south", "west"))


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("FrozenLake-v1 -o none/x.npz", "make the folder none first"),
        ("FrozenLake-v1 -o x.txt", "the name must end in .npz"),
        ("FrozenLake-v1 -o x.npz --steps 0", "--steps is 0 and must be"),
        ("FrozenLake-v1 -o x.npz --steps -3", "--steps is -3 and must be"),
        ("FrozenLake-v1 -o x.npz --episodes 0", "--episodes is 0 and must be"),
        ("FrozenLake-v1 -o x.npz --seed -1", "--seed is -1"),
        ("FrozenLake-v1 -o x.npz --max-episode-steps 0", "--max-episode-steps is 0"),
        ("FrozenLake-v1 -o x.npz --set steps=3", "--set steps=3: use --steps instead"),
        ("FrozenLake-v1 -o x.npz --set max_episode_steps=3", "use --max-episode-steps instead"),
        ("FrozenLake-v1 -o x.npz --set environment=3", "environment=3: name it as the first word"),
        ("FrozenLake-v1 -o x.npz --set state_of=3", "that is a function; use it in Python"),
        ("FrozenLake-v1 -o x.npz --set same_start=no", "same_start is 'no' and must be True or"),
        ("FrozenLake-v1 -o x.npz --set rows=3", "rows"),
        ("FrozenLake-v1 -o x.npz --set environment_seed=x", "seed is 'x'"),
        ("FrozenLake-v1 -o x.npz --policy none.txt", "none.txt: there is no such file"),
        ("FrozenLake-v1 -o x.npz --policy p.txt", "policy has shape (3,)"),
        ("FrozenLakes-v1 -o x.npz", "FrozenLake"),
        ("mirrored-rooms -o x.npz", "`bisimetric sampled bisimulation mirrored-rooms` samples"),
    ],
)
def test_mistakes_are_one_line_and_leave_nothing(run: Run, words: str, complaint: str) -> None:
    Path("p.txt").write_text("0 1 2")
    assert_input_error(run("rollout", *words.split()), complaint)
    assert os.listdir() == ["p.txt"]


def test_a_file_to_save_in_is_needed(run: Run) -> None:
    code, out, err = run("rollout", "FrozenLake-v1")
    assert (code, out) == (2, "")
    assert "-o DATA.npz" in err


def test_the_error_of_a_distance_from_data_refers_to_the_empirical_model(run: Run) -> None:
    words = ("--set", "is_slippery=False", "--steps", "2000", "-o", "lake.npz")
    assert run("rollout", "FrozenLake-v1", *words).code == 0
    result = run("exact", "bisimulation", "lake.npz", "--discount", "0.9")
    assert result.code == 0, result.err
    assert "proven for the empirical model" in result.out
    query = run("exact", "bisimulation", "lake.npz", "--discount", "0.9", "--pairs", "0,0", "0,1")
    assert "proven for the empirical model" in query.out


def test_confidence_bounds_of_data_are_printed_and_saved(run: Run) -> None:
    assert run("rollout", "FrozenLake-v1", "--steps", "3000", "-o", "lake.npz").code == 0
    words = ("exact", "confidence-bounds", "lake.npz", "--reward-range", "0", "1")
    options = ("--discount", "0.3", "--kind", "on-policy", "--pairs", "0,0", "0,1")
    result = run(*words, *options, "-o", "bounds.npz")
    assert result.code == 0, result.err
    bounds = DistanceBounds.load("bounds.npz")
    assert bounds.metadata["policy"] == "that of the data"
    lower, upper = bounds.bounds("0,0", "0,1")
    for line in (
        "policy     that of the data",
        "assumed    random rewards from 0 to 1, adaptive sampling, successors among 12 states",
        "confidence 0.95 that the bounds of all pairs hold",
        f"pair       0,0  0,1  {lower:.6g} to {upper:.6g}",
        "saved      bounds.npz",
    ):
        assert line in result.out
    observed = run(*words, "--support", "observed").out
    assert "successors among those observed" in observed
    assert_input_error(run(*words, "--kind", "on-policy", "--policy", "optimal"), "no such policy")
    assert_input_error(run(*words[:2], "pessimism", *words[3:]), "is no file of transitions")
