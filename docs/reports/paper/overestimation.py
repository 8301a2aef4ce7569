"""Draw how errors accumulate under the paper's target: python docs/reports/paper/overestimation.py.

Tables in place of networks, on the paper's 31 states. Every sweep computes all targets and adds
independent Gaussian noise of mean 0, as an imperfect fit does. The paper's target keeps the larger
one of two numbers, so it keeps noise that increases a distance; a value per action does not.
"""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from bisimetric import exact, worlds

SWEEPS, NOISE, SEEDS = 2_000, 0.01, 10

mdp = worlds.load("mirrored-rooms", discount=0.9)
d = exact.bisimulation(mdp).values
gaps = np.abs(mdp.R[:, None] - mdp.R[None, :]).transpose(2, 0, 1)
distinct = ~np.eye(mdp.num_states, dtype=bool)


def look_ahead(psi):
    """Return |r - r'| + discount * psi(s', t') for every action, (A, S, S)."""
    following = np.stack([psi[np.ix_(n, n)] for n in mdp.next_state.T])
    return gaps + mdp.discount * following


def run_paper(rng):
    """Return the mean error per sweep under max(|r - r'| + discount * psi(s', t'), psi(s, t))."""
    psi, errors = d.copy(), []
    for sweep in range(SWEEPS):
        action = sweep % mdp.num_actions
        psi = np.maximum(look_ahead(psi)[action], psi) + rng.normal(0, NOISE, d.shape)
        psi = np.maximum(np.where(distinct, psi, 0.0), 0.0)
        errors.append((psi - d)[distinct].mean())
    return errors


def run_per_action(rng):
    """Return the mean error per sweep with a value per action, psi(s, t) = max_a Q(s, t, a)."""
    psi, errors = d.copy(), []
    for _ in range(SWEEPS):
        q = look_ahead(psi) + rng.normal(0, NOISE, gaps.shape)
        psi = np.maximum(np.where(distinct, q.max(axis=0), 0.0), 0.0)
        errors.append((psi - d)[distinct].mean())
    return errors


figure, axes = plt.subplots(figsize=(6.4, 3.4), layout="constrained")
for run, label, colour in (
    (run_paper, "target of the paper", "#d55e00"),
    (run_per_action, "a value per action (pair Q-learning)", "#0072b2"),
):
    curves = np.array([run(np.random.default_rng(seed)) for seed in range(SEEDS)])
    axes.plot(curves.mean(axis=0), color=colour, label=label)
    axes.fill_between(
        range(SWEEPS), curves.min(axis=0), curves.max(axis=0), color=colour, alpha=0.3, linewidth=0
    )
    print(f"{label}: {curves[:, -1].mean():.3g} after {SWEEPS} sweeps, largest d~ {d.max():.3g}")
axes.set(xlabel="sweeps", ylabel="mean of psi - d~", ylim=(0, None))
axes.spines[["top", "right"]].set_visible(False)
axes.legend(frameon=False)
figure.savefig(Path(__file__).with_suffix(".png"), dpi=150)
