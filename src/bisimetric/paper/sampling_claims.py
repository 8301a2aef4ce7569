"""Measure the lemmas and theorem 4 of Castro (2020): metrics from sampled transitions.

The lemmas are checked by a plain loop over equation 3, which shares no code with `sampled`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from bisimetric import exact, sampled, worlds
from bisimetric.mdp import MDP
from bisimetric.paper.theory_claims import (
    ROUNDING,
    TOL,
    Outcome,
    format_small,
    judge,
    sample_mdps,
)


def _sample_pairs(mdp: MDP, steps: int, seed: int) -> Iterator[tuple[int, int, float, Any]]:
    """Yield s, t, the backup of the sampled action and d_n of each step of equation 3, in place."""
    rng = np.random.default_rng(seed)
    d = np.zeros((mdp.num_states, mdp.num_states))
    for _ in range(steps):
        s, t = (int(n) for n in rng.integers(mdp.num_states, size=2))
        a = int(rng.integers(mdp.num_actions))
        u, v = mdp.next_state[s, a], mdp.next_state[t, a]
        backup = float(abs(mdp.R[s, a] - mdp.R[t, a]) + mdp.discount * d[u, v])
        d[s, t] = max(d[s, t], backup)
        yield s, t, backup, d


def check_lemmas(count: int) -> Outcome:
    """The lemmas on maximising actions and monotonicity, by a plain loop over equation 3."""
    first_differs, excess, decreases = 0, -np.inf, 0
    for seed, mdp in enumerate(sample_mdps(count)):
        limit = exact.bisimulation(mdp, tol=TOL)
        seen: set[tuple[int, int]] = set()
        before = np.zeros_like(limit.values)
        for s, t, backup, d in _sample_pairs(mdp, 300, seed):
            first_differs += (s, t) not in seen and d[s, t] != backup
            seen.add((s, t))
            decreases += int((d < before).sum())
            before = d.copy()
        excess = max(excess, float((before - limit.values).max()))
    text = (
        f"{first_differs} first samples of a pair are not its backup; {decreases} decreases; "
        f"d_n - d~ at most {format_small(excess)}"
    )
    ok = first_differs == 0 and decreases == 0 and excess <= ROUNDING
    return Outcome(judge(ok), text, f"{count} MDPs, 300 samples each")


def check_sampling_bound(count: int) -> Outcome:
    """The samples after which a pair of transitions was sampled with probability 1 - delta."""
    pairs, delta = 31 * 31 * 4, 0.1
    steps = math.ceil(math.log(delta) / math.log(1 - 1 / pairs))
    runs = 40 * count
    missing = sum(
        not (np.random.default_rng(seed).integers(pairs, size=steps) == 0).any()
        for seed in range(runs)
    )
    margin = 3 * math.sqrt(delta * (1 - delta) / runs)
    text = f"{steps:,} samples of {pairs:,} pairs: {missing / runs:.3f} of runs lack one, delta 0.1"
    return Outcome(judge(missing / runs <= delta + margin), text, f"{runs} runs")


def check_contraction(count: int) -> Outcome:
    """The proof of theorem 4: whether the largest error shrinks by the discount in each step."""
    mdp = worlds.load("mirrored-rooms", discount=0.9)
    limit = exact.bisimulation(mdp, tol=TOL).values
    contracted = total = 0
    for seed in range(max(1, count // 10)):
        error = float(limit.max())
        for *_, d in _sample_pairs(mdp, 5_000, seed):
            after = float((limit - d).max())
            contracted += after <= mdp.discount * error
            error, total = after, total + 1
    text = (
        f"the largest error shrinks by the discount in {contracted} of {total:,} steps: a step "
        "changes one pair. It shrinks once all pairs were sampled, so theorem 4 is true"
    )
    return Outcome(judge(contracted == total), text, f"31 states, {max(1, count // 10)} seeds")


def check_convergence(count: int) -> Outcome:
    """Theorem 4: the sampled metrics converge, on the paper's 31 states at discount 0.99."""
    steps, lines, ok = 3_000_000, [], True
    seeds = max(2, min(10, count // 10))
    for kind, world in (("bisimulation", "mirrored-rooms"), ("on_policy", "mirrored-rooms-policy")):
        mdp = worlds.load(world, discount=0.99)
        limit = getattr(exact, kind)(mdp, tol=TOL).values
        found = [getattr(sampled, kind)(mdp, steps=steps, seed=s).values for s in range(seeds)]
        error = max(float(np.abs(d - limit).max()) for d in found)
        excess = max(float((d - limit).max()) for d in found)
        lines.append(f"{'d~' if kind == 'bisimulation' else 'd^pi'} {format_small(error)}")
        ok &= error <= 1e-2 and excess <= ROUNDING
    text = f"errors after {steps:,} uniform samples at most: {', '.join(lines)}; never above"
    return Outcome(judge(ok), text, f"{seeds} seeds")
