"""Compress a replay buffer by distance, and compare with random parts of equal size.

Random actions fill a buffer; d~ of its empirical MDP selects the representatives. Then a policy is
planned from the selected transitions alone: an action does in a state what it did in the nearest
state with a transition of it, for all three kinds of parts alike.

The bounds are vacuous, at least the trivial bound that holds without any distance, unless states
are nearly bisimilar. The last environment, six copies of each cell of two rooms with slightly
different rewards, is such a case.

Needs `pip install 'bisimetric[worlds]'`. Run it with `python examples/compress_replay.py`;
`--full --png replay.png` draws the figure of docs/how-to/compress.md.
"""

import argparse
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bisimetric import MDP, Transitions, datasets, exact, planning, uses, views, worlds
from bisimetric.uses.replay_policy import solve_replay

Array = NDArray[np.float64]
FRACTIONS = tuple(np.arange(1, 11) / 10)
KINDS = (
    "compressed by d~",
    "random states and actions",
    "random transitions",
    "bound for d~",
    "trivial bound",
)
RESTART = 0.02
DISCOUNT = 0.9


def add_clock(mdp: MDP, ticks: int) -> MDP:
    """Add a cyclic clock that is irrelevant to rewards and moves."""
    time = np.repeat(np.arange(ticks), mdp.num_states)[:, None]
    successors = np.tile(mdp.next_state, (ticks, 1)) + (time + 1) % ticks * mdp.num_states
    return MDP.deterministic(successors, np.tile(mdp.R, (ticks, 1)), discount=mdp.discount)


def sample_transitions(mdp: MDP, steps: int, seed: int) -> Transitions:
    """Take random actions in a deterministic MDP, with restarts in random states."""
    rng = np.random.default_rng(seed)
    states, actions = np.empty(steps, np.int64), rng.integers(mdp.num_actions, size=steps)
    truncated = rng.random(steps) < RESTART
    state = int(rng.integers(mdp.num_states))
    for step in range(steps):
        states[step] = state
        state = int(mdp.next_state[state, actions[step]])
        if truncated[step]:
            state = int(rng.integers(mdp.num_states))
    return Transitions(
        states,
        actions,
        mdp.R[states, actions],
        mdp.next_state[states, actions],
        np.zeros(steps, np.bool_),
        truncated,
        num_states=mdp.num_states,
        num_actions=mdp.num_actions,
    )


def copy_states(mdp: MDP, times: int, noise: float, seed: int = 0) -> MDP:
    """Copy every state `times` times; moves lead to any copy, rewards differ by up to `noise`."""
    rng = np.random.default_rng(seed)
    shape = (mdp.num_states, times, mdp.num_actions)
    successors = times * mdp.next_state[:, None, :] + rng.integers(0, times, shape)
    rewards = mdp.R[:, None, :] + noise * rng.uniform(-1, 1, shape)
    flat = (mdp.num_states * times, mdp.num_actions)
    return MDP.deterministic(successors.reshape(flat), rewards.reshape(flat), discount=mdp.discount)


def lake(seed: int, steps: int) -> tuple[MDP, Transitions]:
    """FrozenLake 8x8, with more moves down and right, where the goal is."""
    options: dict[str, Any] = {"map_name": "8x8", "is_slippery": False}
    policy = np.tile([0.15, 0.35, 0.35, 0.15], (64, 1))
    data = datasets.rollout("FrozenLake-v1", policy, steps=steps, seed=seed, **options)
    return worlds.load("FrozenLake-v1", discount=DISCOUNT, **options), data


def cliff(seed: int, steps: int) -> tuple[MDP, Transitions]:
    """CliffWalking with random actions."""
    data = datasets.rollout("CliffWalking-v1", steps=steps, seed=seed)
    return worlds.load("CliffWalking-v1", discount=DISCOUNT), data


def rooms(seed: int, steps: int) -> tuple[MDP, Transitions]:
    """The paper's two rooms with random actions."""
    mdp = worlds.load("mirrored-rooms", discount=DISCOUNT)
    return mdp, sample_transitions(mdp, steps, seed)


def rooms_with_clock(seed: int, steps: int) -> tuple[MDP, Transitions]:
    """The paper's two rooms with a clock of eight ticks."""
    mdp = add_clock(worlds.load("mirrored-rooms", discount=DISCOUNT), 8)
    return mdp, sample_transitions(mdp, steps, seed)


WORLDS = {
    "FrozenLake 8x8": lake,
    "CliffWalking": cliff,
    "mirrored-rooms with a clock": rooms_with_clock,
    "mirrored-rooms": rooms,
}


def measure_regrets(mdp: MDP, data: Transitions, fractions: tuple[float, ...], seed: int) -> Array:
    """Return the mean regret relative to that of random actions, (kinds, fractions)."""
    d = exact.bisimulation(data.to_mdp(discount=DISCOUNT, unseen="missing"))
    V = planning.optimal_values(mdp).values
    uniform = np.full(mdp.R.shape, 1 / mdp.num_actions)
    assert data.states is not None
    exited = np.unique(data.states)
    random_regret = (V - planning.policy_values(mdp, uniform).values)[exited].mean()
    rng = np.random.default_rng(seed)
    codes = data.states * mdp.num_actions + data.actions
    first = np.unique(codes, return_index=True)[1]
    regrets = np.empty((len(KINDS), len(fractions)))
    for column, fraction in enumerate(fractions):
        number = max(mdp.num_actions, round(fraction * len(first)))
        coreset = uses.compress(data, d, number)
        parts = (
            coreset.transitions,
            data[np.sort(rng.choice(first, number, replace=False))],
            data.sample(number, seed),
        )
        for kind, part in enumerate(parts):
            planned = solve_replay(part, d)
            policy = planned.policy[: mdp.num_states]
            regret = (V - planning.policy_values(mdp, policy).values)[exited].mean()
            regrets[kind, column] = regret / random_regret
            if kind == 0:
                regrets[3, column] = planned.regret_bound[exited].max() / random_regret
                regrets[4, column] = planned.trivial_bound / random_regret
    return regrets


def show_bounds() -> None:
    """Compress a buffer of nearly bisimilar states, where the bounds are not vacuous."""
    mdp = copy_states(worlds.load("mirrored-rooms", discount=DISCOUNT), 6, noise=1e-4)
    data, d = sample_transitions(mdp, 20_000, seed=0), exact.bisimulation(mdp)
    coreset = uses.compress(data, d, 124)
    planned = solve_replay(coreset.transitions, d)
    print(f"six copies of each cell: {coreset}")
    print(f"  {'':<10} {'bound':>10} {'realised':>10} {'trivial bound':>14}")
    values = (coreset.value_bound, coreset.value_gap, coreset.trivial_bound)
    regrets = (planned.regret_bound.max(), planned.regret.max(), planned.trivial_bound)
    for name, numbers in (("Q*", values), ("regret", regrets)):
        print("  {:<10} {:>10.4g} {:>10.4g} {:>14.4g}".format(name, *numbers))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--full", action="store_true", help="larger buffers, and 20 seeds")
    parser.add_argument("--png", help="save the figure")
    arguments = parser.parse_args()
    steps, num_seeds = (20_000, 20) if arguments.full else (3_000, 2)
    fractions = FRACTIONS if arguments.full else FRACTIONS[1::4]
    panels: dict[str, dict[str, Array]] = {}
    for name, make in WORLDS.items():
        runs = np.array(
            [measure_regrets(*make(seed, steps), fractions, seed) for seed in range(num_seeds)]
        )
        panels[name] = {kind: runs[:, place] for place, kind in enumerate(KINDS)}
        print(f"{name}: regret with {', '.join(f'{fraction:.0%}' for fraction in fractions)} kept")
        for kind, each in panels[name].items():
            print(f"  {kind:<27}", *(f"{mean:8.3f}" for mean in each.mean(axis=0)))
    show_bounds()
    if arguments.png:
        selected = {
            name: {kind: each for kind, each in lines.items() if kind in KINDS[:3]}
            for name, lines in panels.items()
        }
        title = "Regret of planning from a part of the buffer"
        views.save_figure(
            views.plot_compression_regret(fractions, selected, columns=2, title=title),
            arguments.png,
        )


if __name__ == "__main__":
    main()
