"""Agents that explore, what is measured of them, the picture and the command line."""

from __future__ import annotations

import dataclasses
import importlib
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bisimetric import MDP, Distance, InputError, exact, planning, relation, uses, worlds
from bisimetric._statistics import compute_confidence_interval
from bisimetric.uses.exploration import experiment
from bisimetric.uses.exploration.environments import MDPEnvironment
from bisimetric.uses.exploration.experiment import (
    ExplorationArm,
    ExplorationComparison,
    QLearningConfig,
    compare,
    run_arm,
    run_q_learning,
)
from bisimetric.views.exploration import plot_exploration
from bisimetric.views.terminal import format_comparison


@pytest.fixture(scope="module")
def rooms() -> MDP:
    return worlds.load("mirrored-rooms")


@pytest.fixture(scope="module")
def d(rooms: MDP) -> Distance:
    return exact.bisimulation(rooms.replace(discount=0.9))


@pytest.fixture(scope="module")
def comparison(rooms: MDP, d: Distance) -> ExplorationComparison:
    arms = {
        "no bonus": ExplorationArm("none"),
        "counts": ExplorationArm("states"),
        "distance": ExplorationArm("distance", d),
    }
    return compare(rooms, arms, steps=300, num_seeds=3, start="6,1", max_episode_steps=40)


def run_steps(mdp: MDP, arm: ExplorationArm, count: int, seed: int = 0) -> list[Any]:
    return list(itertools.islice(run_arm(mdp, arm, 0, 50, seed), count))


def test_the_same_seed_gives_the_same_run(rooms: MDP, d: Distance) -> None:
    for arm in (
        ExplorationArm("none"),
        ExplorationArm("states"),
        ExplorationArm("distance", d),
        ExplorationArm("own steps"),
    ):
        assert run_steps(rooms, arm, 400) == run_steps(rooms, arm, 400)
        assert run_steps(rooms, arm, 400) != run_steps(rooms, arm, 400, seed=1)


def test_arms_that_mean_the_same_do_the_same(rooms: MDP, d: Distance) -> None:
    assert len(np.unique(relation.bisimulation(rooms))) == 31, "no two states are alike"
    counts = run_steps(rooms, ExplorationArm("states", bonus_scale=0.01), 500)
    near = ExplorationArm(
        "distance", d, bonus_scale=0.01, radius=float(d.values[d.values > 0].min())
    )
    assert run_steps(rooms, near, 500) == counts
    assert run_steps(rooms, dataclasses.replace(near, rule="nearest"), 500) == counts
    assert run_steps(rooms, dataclasses.replace(near, radius=None), 500) != counts
    for source in ("states", "own steps"):
        assert run_steps(rooms, ExplorationArm(source, bonus_scale=0.0), 300) == run_steps(
            rooms, ExplorationArm("none"), 300
        )


def test_own_steps_count_until_they_pay_differently(
    rooms: MDP, d: Distance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(experiment, "FIRST_UPDATE", 100)
    sparse = rooms.replace(R=np.maximum(rooms.R, 0.0))
    own, counts = (
        run_steps(sparse, ExplorationArm(source), 1500) for source in ("own steps", "states")
    )
    paid = next(number for number, step in enumerate(own) if step.reward > 0)
    estimated = next(each for each in (100 * 2**k for k in range(20)) if each > paid)
    assert own[:estimated] == counts[:estimated]
    assert own != counts
    data = own[:estimated]
    learned: list[Any] = []
    environment = uses.bonus(MDPEnvironment(sparse), 1 - np.eye(31), radius=0.0)
    watched = experiment.OnlineDistance(sparse, environment, None).track(iter(data))
    for step in data:
        learned.append(environment.visits.radius)
        environment.visits = environment.visits.visit(step.successor)[1]
        assert next(watched) == step
    assert learned == [0.0] * estimated
    assert environment.visits.radius > 0, "the steps have a distance, and its median"
    assert environment.visits.counts.sum() == estimated


def test_an_agent_learns_the_optimal_policy(rooms: MDP) -> None:
    sure = rooms.replace(discount=0.9)
    learner = QLearningConfig(0.9, initial_value=1.0, epsilon=0.3)
    walk = run_q_learning(MDPEnvironment(sure, "3,1", 30), sure.action_mask, learner, seed=0)
    last = list(itertools.islice(walk, 20_000))[-2_000:]
    greedy = planning.optimal_values(sure).values
    best = sure.R + 0.9 * greedy[sure.next_state]
    right = [best[step.state, step.action] >= greedy[step.state] - 1e-6 for step in last]
    assert np.mean(right) > 0.7, "all but the random ones"


def test_an_agent_takes_only_available_actions() -> None:
    mdp = MDP.deterministic(
        [[1, 0], [0, 1]],
        [[0.0, 5.0], [1.0, 5.0]],
        discount=0.9,
        available=[[True, False], [True, False]],
    )
    assert {step.action for step in run_steps(mdp, ExplorationArm("states", epsilon=0.5), 200)} == {
        0
    }
    assert (
        compare(mdp, {"counts": ExplorationArm("states")}, steps=50, num_seeds=1).goals[0, 0, -1]
        == 25
    )


def test_measurements_equal_those_of_the_run(
    rooms: MDP, d: Distance, comparison: ExplorationComparison
) -> None:
    assert comparison.names == ("no bonus", "counts", "distance")
    assert comparison.steps.tolist() == list(range(3, 301, 3))
    assert comparison.num_reachable == 31
    start = rooms.state("6,1")
    for row, arm in enumerate(
        (ExplorationArm("none"), ExplorationArm("states"), ExplorationArm("distance", d))
    ):
        for seed in range(3):
            walk = itertools.islice(run_arm(rooms, arm, start, 40, seed), 300)
            seen, goals, first = {start}, 0, np.inf
            for number, step in enumerate(walk, start=1):
                seen.add(step.successor)
                goals += step.reward == 1
                first = min(first, number if step.reward == 1 else np.inf)
                if number % 3 == 0:
                    assert comparison.visited[row, seed, number // 3 - 1] == len(seen)
                    assert comparison.goals[row, seed, number // 3 - 1] == goals
            assert comparison.first_goal[row, seed] == first
    assert (np.diff(comparison.visited, axis=2) >= 0).all()


def test_bisimilar_states_count_once() -> None:
    copies = worlds.load("duplicated-grid")
    several = compare(copies, {"none": ExplorationArm("none")}, steps=200, num_seeds=1)
    assert several.num_reachable == 31
    assert several.visited.max() <= 31


def test_numbers_are_saved_whole(comparison: ExplorationComparison, tmp_path: Path) -> None:
    comparison.save(tmp_path / "x.npz")
    again = ExplorationComparison.load(tmp_path / "x.npz")
    for field in dataclasses.fields(comparison):
        one, other = getattr(comparison, field.name), getattr(again, field.name)
        assert (one == other).all() if isinstance(one, np.ndarray) else one == other
    (tmp_path / "cut.npz").write_bytes((tmp_path / "x.npz").read_bytes()[:300])
    with pytest.raises(InputError, match=r"cut\.npz is cut short or holds no exploration"):
        ExplorationComparison.load(tmp_path / "cut.npz")


def test_bad_comparisons_raise(rooms: MDP, d: Distance, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="arms is empty; give at least one"):
        compare(rooms, {})
    with pytest.raises(InputError, match="the largest reward of the MDP is 0, so there is"):
        compare(rooms.replace(R=np.minimum(rooms.R, 0)), {"none": ExplorationArm("none")})
    with pytest.raises(InputError, match="there is no state 31"):
        compare(rooms, {"none": ExplorationArm("none")}, start=31)
    with pytest.raises(InputError, match="steps is 0 and must be a whole number, at least 1"):
        compare(rooms, {"none": ExplorationArm("none")}, steps=0)
    with pytest.raises(InputError, match="Environment: has 31 states, and d has 3"):
        compare(rooms, {"other": ExplorationArm("distance", 1 - np.eye(3))}, steps=10)

    def missing(package: str) -> Any:
        raise ImportError(package)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(InputError, match=r"gymnasium is not installed; pip install 'bisimetric\["):
        compare(rooms, {"none": ExplorationArm("none")}, steps=10)


def test_lines_of_a_picture_are_means(comparison: ExplorationComparison) -> None:
    figure = plot_exploration({"rooms": comparison})
    for panel, numbers in zip(figure.axes, (comparison.visited, comparison.goals), strict=True):
        named = {line.get_label(): line for line in panel.lines}
        for row, name in enumerate(comparison.names):
            assert np.allclose(named[name].get_ydata(), numbers[row].mean(axis=0))
            assert np.allclose(named[name].get_xdata(), comparison.steps)
        assert len(panel.collections) == 3, "one interval per line"
    assert plot_exploration({"rooms": comparison}).get_suptitle() == "rooms"
    alone = dataclasses.replace(
        comparison,
        **{name: getattr(comparison, name)[:, :1] for name in ("visited", "goals", "first_goal")},
    )
    assert not plot_exploration({"one seed": alone}).axes[0].collections
    with pytest.raises(InputError, match="exploration: there is nothing to draw"):
        plot_exploration({})


def test_lines_of_a_table_are_the_numbers(comparison: ExplorationComparison) -> None:
    never = dataclasses.replace(comparison, first_goal=np.full((3, 3), np.inf))
    said = list(format_comparison(comparison))
    assert len(said) == 5
    for row, name in enumerate(comparison.names):
        mean, half = compute_confidence_interval(comparison.goals[row, :, -1])
        assert said[row + 1].startswith(name)
        assert said[row + 1].endswith(f"{mean:.1f} +- {half:.1f}")
    assert "never  0 of 3" in list(format_comparison(never))[1]


def test_several_environments_have_two_panels_of_dots(comparison: ExplorationComparison) -> None:
    never = dataclasses.replace(comparison, first_goal=np.full_like(comparison.first_goal, np.inf))
    figure = plot_exploration({"rooms": comparison, "never": never})
    first, goals = figure.axes
    assert [text.get_text() for text in first.get_yticklabels()] == ["rooms", "never"]
    for row, name in enumerate(comparison.names):
        dots = [line for line in goals.lines if line.get_label() == name]
        mean = comparison.goals[row, :, -1].mean() * 1000 / comparison.steps[-1]
        assert [float(np.asarray(dot.get_xdata())[0]) for dot in dots] == pytest.approx([mean] * 2)
        heights = [float(np.asarray(dot.get_ydata())[0]) for dot in dots]
        assert heights[1] == pytest.approx(heights[0] + 1)
        medians = [line for line in first.lines if line.get_label() == name]
        finite = bool(np.isfinite(np.median(comparison.first_goal[row])))
        assert len(medians) == finite, "no dot where fewer than half of the seeds reach a goal"
