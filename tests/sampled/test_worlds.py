"""Gymnasium rollouts reach the exact metric of the imported model on every pair they covered."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bisimetric import datasets, exact, sampled, worlds

pytest.importorskip("gymnasium")

WORLDS: list[tuple[str, dict[str, Any], int, int]] = [
    ("FrozenLake-v1", {"is_slippery": False}, 20_000, 66),
    ("CliffWalking-v1", {}, 60_000, 703),
    ("MiniGrid-Empty-5x5-v0", {}, 20_000, 528),
]


@pytest.mark.parametrize(("name", "options", "steps", "pairs"), WORLDS, ids=lambda each: str(each))
@pytest.mark.parametrize("kind", ["data set", "stream"])
def test_what_was_covered_is_exact(
    name: str, options: dict[str, Any], steps: int, pairs: int, kind: str
) -> None:
    mdp = worlds.load(name, **options)
    truth = exact.bisimulation(mdp, tol=1e-9)
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
    # The end of the data is any state of the model that stays where it is for nothing.
    stays = (mdp.next_state == np.arange(mdp.num_states)[:, None]) & (mdp.R == 0)
    end = int(np.flatnonzero(stays.all(axis=1))[0])
    names = [d.mdp.state_name(s) for s in range(d.mdp.num_states)]
    covered = np.flatnonzero(coverage.determined.sum(axis=1) > 1)
    there = [end if names[s] == "end" else mdp.state(names[s]) for s in covered]
    exactly = truth.values[np.ix_(there, there)]
    sampled_ones = d.values[np.ix_(covered, covered)]
    assert coverage.determined[np.ix_(covered, covered)].all()
    assert np.abs(exactly - sampled_ones).max() <= coverage.error + truth.error
    assert coverage.error <= 1e-2
    assert exactly.max() == pytest.approx(truth.values.max(), abs=2e-2)


def test_slipping_is_refused_and_the_model_offered() -> None:
    slippery = datasets.rollout("FrozenLake-v1", steps=500, is_slippery=True)
    with pytest.raises(ValueError, match=r"led to .* use exact.bisimulation\(transitions.to_mdp"):
        sampled.bisimulation(slippery)
    assert not slippery.to_mdp(unseen="lacking").is_deterministic
