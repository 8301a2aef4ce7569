"""What the page explains is what `Distance.explain` does, pair by pair."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Page

from bisimetric import MDP, Distance, exact, explorer, planning, worlds
from tests.partial_data import compute_partial_distance

Open = Callable[..., Page]
ALL = """(n) => {
  const found = [];
  const d = bisimetric.distances[0];
  for (let s = 0; s < n; s++) for (let t = 0; t < n; t++) found.push(d.explain(s, t));
  return found;
}"""


def build_partial_actions(seed: int) -> MDP:
    """An MDP in which states lack actions."""
    rng = np.random.default_rng(seed)
    has = rng.random((8, 3)) < 0.8
    has[:, 0] = True
    n, R = rng.integers(0, 8, (8, 3)), rng.integers(0, 3, (8, 3)).astype(float)
    return MDP.deterministic(n, R, discount=0.8, available=has)


def build_stochastic(seed: int) -> MDP:
    return worlds.load("random", states=9, actions=2, successors=3, seed=seed, discount=0.8)


def build_stochastic_policy(mdp: MDP) -> np.ndarray[Any, Any]:
    shares = np.random.default_rng(0).random(mdp.R.shape)
    shares[0] = np.eye(mdp.num_actions)[0]
    return np.asarray(shares / shares.sum(axis=1, keepdims=True))


def compute_distances() -> dict[str, Distance]:
    rooms = worlds.load("mirrored-rooms", discount=0.9)
    greedy = planning.greedy_policy(rooms)
    tree = build_stochastic(0)
    return {
        "rooms": exact.bisimulation(rooms),
        "rooms-policy": exact.on_policy(rooms, greedy),
        "rooms-lax": exact.lax(rooms),
        "rooms-mico": exact.mico(rooms, greedy),
        "pessimism": exact.lax(worlds.load("pessimism")),
        "lacking": exact.bisimulation(build_partial_actions(0)),
        "lacking-lax": exact.lax(build_partial_actions(1)),
        "stochastic": exact.bisimulation(tree),
        "stochastic-lax": exact.lax(tree),
        "stochastic-policy": exact.on_policy(tree, build_stochastic_policy(tree)),
        "stochastic-mico": exact.mico(tree, build_stochastic_policy(tree)),
        "seen": compute_partial_distance(build_partial_actions(2).replace(available=None), 1),
        "seen-less": compute_partial_distance(build_partial_actions(3).replace(available=None), 4),
    }


@pytest.fixture(scope="module")
def computed() -> dict[str, Distance]:
    return compute_distances()


@pytest.mark.parametrize("name", compute_distances())
def test_explanations_equal_those_of_explain(
    show: Open, computed: dict[str, Distance], name: str
) -> None:
    d = computed[name]
    page = show(explorer.render_page(d))
    n = d.mdp.num_states
    found = page.evaluate(ALL, n)
    loose = max(1e-9, 4 * d.error) if np.isfinite(d.error) else 1e-9
    for place, each in enumerate(found):
        s, t = divmod(place, n)
        why = d.explain(s, t)
        assert each["total"] == pytest.approx(why.total, rel=1e-9, abs=loose)
        assert each["mismatchedPair"] == (
            None if why.mismatched_pair is None else list(why.mismatched_pair)
        )
        assert each["outsidePair"] is None
        if not why.steps:
            assert each["steps"] == []
            continue
        first, mine = why.steps[0], each["steps"][0]
        assert mine["states"] == [s, t]
        assert_same_step(d, first, mine, loose)
        if not first.coupling:
            assert len(each["steps"]) == len(why.steps)
            assert each["loopStart"] == why.loop_start
            for step, other in zip(why.steps, each["steps"], strict=True):
                assert other["states"] == list(step.states)
                assert other["contribution"] == pytest.approx(step.contribution)
                assert other["actions"] == (None if step.actions is None else list(step.actions))


def assert_same_step(d: Distance, step: Any, mine: dict[str, Any], loose: float) -> None:
    """The same gap and the same cost; plans of equal cost may differ."""
    total = step.reward_gap + sum(match.contribution for match in step.coupling)
    assert mine["rewardGap"] + sum(
        match["contribution"] for match in mine["coupling"]
    ) == pytest.approx(total, rel=1e-9, abs=loose)
    assert bool(mine["coupling"]) == bool(step.coupling)
    if step.coupling:
        assert sum(match["mass"] for match in mine["coupling"]) == pytest.approx(1)
        for match in mine["coupling"]:
            x, y = match["states"]
            assert match["contribution"] == pytest.approx(d.mdp.discount * match["mass"] * d(x, y))


@pytest.mark.parametrize("seed", range(3))
def test_couplings_of_wide_steps_cost_as_little_as_linear_programmes(show: Open, seed: int) -> None:
    mdp = worlds.load("random", states=30, actions=1, successors=14, seed=seed, discount=0.7)
    d = exact.bisimulation(mdp)
    costs = show(explorer.render_page(d)).evaluate(
        ALL.replace("explain(s, t)", "explain(s, t).total"), 30
    )
    assert np.abs(np.reshape(costs, (30, 30)) - d.values).max() < 1e-6


def test_a_coupling_is_shown_step_by_step(show: Open, computed: dict[str, Distance]) -> None:
    d = computed["stochastic"]
    page = show(explorer.render_page(d))
    page.evaluate("bisimetric.selection.selectPair(0, 1)")
    why = d.explain(0, 1)
    rows = page.locator("table.matches tbody tr")
    cells = rows.last.locator("td").all_text_contents()
    assert cells[1] == "total"
    assert float(cells[-1]) == pytest.approx(why.distance, abs=1e-4)
    assert page.locator(".paths .match").count() > 0
    page.get_by_label("one step forward").click()
    assert "Step 1:" in (page.locator(".explanation").text_content() or "")
