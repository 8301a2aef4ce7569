"""Gymnasium rollouts reach the exact metric of the imported model on every pair they covered."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bisimetric import datasets, exact, sampled, worlds

pytest.importorskip("gymnasium")

WORLDS: list[tuple[str, dict[str, Any], int, int]] = [
    ("FrozenLake-v1", {"is_slippery": False}, 4_000, 66),
    ("CliffWalking-v1", {}, 25_000, 703),
    ("MiniGrid-Empty-5x5-v0", {}, 6_000, 528),
]


@pytest.mark.parametrize(("name", "options", "steps", "pairs"), WORLDS, ids=lambda each: str(each))
@pytest.mark.parametrize("kind", ["data set", "stream"])
def test_covered_distances_are_exact(
    name: str, options: dict[str, Any], steps: int, pairs: int, kind: str
) -> None:
    mdp = worlds.load(name, **options)
    reference = exact.bisimulation(mdp, tol=1e-9)
    source: Any
    if kind == "data set":
        source = datasets.rollout(name, steps=steps, seed=0, **options)
        d = sampled.bisimulation(source, tol=1e-6)
    else:
        source = datasets.stream(name, steps=steps, seed=0, **options)
        d = sampled.bisimulation(source, updates_per_transition=100, sampler=sampled.Prioritised())
    coverage = d.coverage
    assert coverage is not None
    assert coverage.num_proven == coverage.num_state_pairs == pairs
    assert d.error == coverage.error
    # The terminal state of the data, its last, is any absorbing state of the MDP with reward 0.
    loops = (mdp.next_state == np.arange(mdp.num_states)[:, None]) & (mdp.R == 0)
    absorbing = int(np.flatnonzero(loops.all(axis=1))[0])
    names = [d.mdp.state_name(s) for s in range(d.mdp.num_states)]
    covered = np.flatnonzero(coverage.determined.sum(axis=1) > 1)
    terminal = d.mdp.num_states - 1
    same = [absorbing if s == terminal else mdp.state(names[s]) for s in covered]
    exact_values = reference.values[np.ix_(same, same)]
    sampled_values = d.values[np.ix_(covered, covered)]
    assert coverage.determined[np.ix_(covered, covered)].all()
    assert np.abs(exact_values - sampled_values).max() <= coverage.error + reference.error
    assert coverage.error <= 1e-2
    assert exact_values.max() == pytest.approx(reference.values.max(), abs=2e-2)


def test_stochastic_data_raise_and_suggest_exact() -> None:
    slippery = datasets.rollout("FrozenLake-v1", steps=500, is_slippery=True)
    with pytest.raises(ValueError, match=r"led to .* use exact.bisimulation\(transitions.to_mdp"):
        sampled.bisimulation(slippery)
    assert not slippery.to_mdp(unseen="missing").is_deterministic
