"""A replay buffer thinned by distance, against random parts of it that are equally large.

Random actions fill a buffer; d~ of the model that it makes says which steps stand for which. Then
the kept steps alone teach: what an action does in a state is taken from the nearest state that has
a step with it, for all three kinds of parts alike, and the model is solved.

Needs `pip install 'bisimetric[worlds]'`. Run it with `python examples/compress_replay.py`;
`--full --png replay.png` makes the figure of docs/uses/compress.md.
"""

import argparse
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bisimetric import MDP, Transitions, datasets, exact, planning, uses, views, worlds
from bisimetric.uses.replay_policy import solve_replay

Array = NDArray[np.float64]
SHARES = tuple(np.arange(1, 11) / 10)
KINDS = ("thinned by d~", "random states and actions", "random steps", "promised for d~")
RESTART = 0.02
DISCOUNT = 0.9


def clock(mdp: MDP, ticks: int) -> MDP:
    """The same world with a clock that runs in a circle and means nothing."""
    time = np.repeat(np.arange(ticks), mdp.num_states)[:, None]
    there = np.tile(mdp.next_state, (ticks, 1)) + (time + 1) % ticks * mdp.num_states
    return MDP.deterministic(there, np.tile(mdp.R, (ticks, 1)), discount=mdp.discount)


def walk(mdp: MDP, steps: int, key: int) -> Transitions:
    """Random actions in a deterministic world, from a random state every now and then."""
    rng = np.random.default_rng(key)
    states, actions = np.empty(steps, np.int64), rng.integers(mdp.num_actions, size=steps)
    cut = rng.random(steps) < RESTART
    here = int(rng.integers(mdp.num_states))
    for step in range(steps):
        states[step] = here
        here = int(mdp.next_state[here, actions[step]])
        if cut[step]:
            here = int(rng.integers(mdp.num_states))
    return Transitions(
        states,
        actions,
        mdp.R[states, actions],
        mdp.next_state[states, actions],
        np.zeros(steps, np.bool_),
        cut,
        num_states=mdp.num_states,
        num_actions=mdp.num_actions,
    )


def lake(key: int, steps: int) -> tuple[MDP, Transitions]:
    """FrozenLake 8x8, walked down and right more often, where the goal is."""
    options: dict[str, Any] = {"map_name": "8x8", "is_slippery": False}
    policy = np.tile([0.15, 0.35, 0.35, 0.15], (64, 1))
    data = datasets.rollout("FrozenLake-v1", policy, steps=steps, seed=key, **options)
    return worlds.load("FrozenLake-v1", discount=DISCOUNT, **options), data


def cliff(key: int, steps: int) -> tuple[MDP, Transitions]:
    """CliffWalking by random actions."""
    data = datasets.rollout("CliffWalking-v1", steps=steps, seed=key)
    return worlds.load("CliffWalking-v1", discount=DISCOUNT), data


def rooms(key: int, steps: int) -> tuple[MDP, Transitions]:
    """The two rooms of the paper, by random actions."""
    mdp = worlds.load("mirrored-rooms", discount=DISCOUNT)
    return mdp, walk(mdp, steps, key)


def clocked(key: int, steps: int) -> tuple[MDP, Transitions]:
    """The same with a clock of eight ticks."""
    mdp = clock(worlds.load("mirrored-rooms", discount=DISCOUNT), 8)
    return mdp, walk(mdp, steps, key)


WORLDS = {
    "FrozenLake 8x8": lake,
    "CliffWalking": cliff,
    "mirrored-rooms with a clock": clocked,
    "mirrored-rooms": rooms,
}


def losses(truth: MDP, data: Transitions, shares: tuple[float, ...], key: int) -> Array:
    """What is lost of V*, as a share of what random actions lose, (kinds, shares)."""
    d = exact.bisimulation(data.to_mdp(discount=DISCOUNT, unseen="missing"))
    V = planning.optimal_values(truth).values
    uniform = np.full(truth.R.shape, 1 / truth.num_actions)
    assert data.states is not None
    left = np.unique(data.states)
    most = (V - planning.policy_values(truth, uniform).values)[left].mean()
    rng = np.random.default_rng(key)
    both = data.states * truth.num_actions + data.actions
    first = np.unique(both, return_index=True)[1]
    found = np.empty((len(KINDS), len(shares)))
    for place, share in enumerate(shares):
        number = max(truth.num_actions, round(share * len(first)))
        thinned = uses.compress(data, d, number)
        parts = (
            thinned.transitions,
            data[np.sort(rng.choice(first, number, replace=False))],
            data.sample(number, key),
        )
        for kind, part in enumerate(parts):
            taught = solve_replay(part, d)
            policy = taught.policy[: truth.num_states]
            lost = (V - planning.policy_values(truth, policy).values)[left].mean()
            found[kind, place] = lost / most
            if kind == 0:
                found[-1, place] = taught.regret_bound[left].mean() / most
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--full", action="store_true", help="larger buffers, and 20 keys")
    parser.add_argument("--png", help="save the figure")
    chosen = parser.parse_args()
    steps, keys = (20_000, 20) if chosen.full else (3_000, 2)
    shares = SHARES if chosen.full else SHARES[1::4]
    panels: dict[str, dict[str, Array]] = {}
    for name, make in WORLDS.items():
        runs = np.array([losses(*make(key, steps), shares, key) for key in range(keys)])
        panels[name] = {kind: runs[:, place] for place, kind in enumerate(KINDS)}
        print(f"{name}: lost, with {', '.join(f'{share:.0%}' for share in shares)} kept")
        for kind, each in panels[name].items():
            print(f"  {kind:<27}", *(f"{mean:8.3f}" for mean in each.mean(axis=0)))
    if chosen.png:
        drawn = {
            name: {kind: each for kind, each in lines.items() if kind in KINDS[:3]}
            for name, lines in panels.items()
        }
        title = "What is lost by learning from a part of the buffer"
        views.save_figure(
            views.plot_compression_regret(shares, drawn, columns=2, title=title), chosen.png
        )


if __name__ == "__main__":
    main()
