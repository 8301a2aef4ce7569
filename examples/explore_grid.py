"""Does a distance help to explore? Rooms, the same with noise, and rooms of MiniGrid.

Needs `pip install 'bisimetric[worlds]'`. Run it with `python examples/explore_grid.py`: one small
world, in seconds, writes explore.png. With `--full` four worlds, the arms tuned first with
equal effort, then 10 keys each: some 35 minutes, and what docs/uses/explore.md shows.
"""

import argparse
import dataclasses
import itertools
from pathlib import Path

import gymnasium
import numpy as np
from scipy import sparse

from bisimetric import MDP, exact, uses, worlds
from bisimetric.uses.exploration.experiment import (
    DISTANCE_DISCOUNT,
    ExplorationArm,
    ExplorationComparison,
    compare,
)
from bisimetric.views import save_figure
from bisimetric.views.exploration import format_comparison, plot_exploration
from bisimetric.worlds.grids import grid

ROOMS = """\
*******************
*     *     *     *
*     *     *     *
*                 *
*     *     *     *
*     *     *     *
*** ***** ***** ***
*     *     *     *
*     *     *     *
*           *     *
*     *     *     *
*     *           *
*** ***** *********
*     *     *     *
*     *     *     *
*                 *
*     *     *     *
*     *     *    g*
*******************
"""
SCREENS = 4
ROOM = "MiniGrid-FourRooms-v0"
NONE, COUNTS = "no bonus", "counts"
EXACT, NEAREST = "distance", "distance, nearest visit"
BLIND, OWN = "distance, goal left out", "distance of own steps"
INITIAL, SCALES, EPSILONS = (0.1, 1.0), (0.001, 0.01), (0.0, 0.02, 0.05, 0.2)
TUNED_WITH = 100


def noisy(mdp: MDP, screens: int) -> MDP:
    """The same world with a screen in every state that shows noise: after a step, any picture."""
    anywhere = sparse.hstack([mdp.P] * screens) / screens
    P = sparse.csr_array(sparse.vstack([anywhere] * screens))
    return MDP(P, np.tile(mdp.R, (screens, 1)), discount=mdp.discount)


def arms(mdp: MDP) -> dict[str, ExplorationArm]:
    """No bonus, counts, and bonuses by d~: exact; without the goal; of the agent's own steps."""
    near = mdp.replace(discount=DISTANCE_DISCOUNT)
    d = exact.bisimulation(near)
    found = {NONE: ExplorationArm("none"), COUNTS: ExplorationArm("states")}
    found |= {
        EXACT: ExplorationArm("distance", d),
        NEAREST: ExplorationArm("distance", d, rule="nearest"),
    }
    blind = exact.bisimulation(near.replace(R=np.where(mdp.R.max() > mdp.R, mdp.R, 0.0)))
    if blind.values.max() > 0:
        found[BLIND] = ExplorationArm("distance", blind)
    return found | {OWN: ExplorationArm("own steps")}


def tuned(mdp: MDP, arm: ExplorationArm, steps: int, longest: int) -> ExplorationArm:
    """The best of eight settings, by goals in four runs whose keys are not used again."""
    bonus = itertools.product(SCALES, EPSILONS[::2])
    pairs = [(0.0, epsilon) for epsilon in EPSILONS] if arm.source == "none" else list(bonus)
    tried = {
        f"scale {scale:g}, epsilon {epsilon:g}, initial {initial:g}": dataclasses.replace(
            arm, scale=scale, epsilon=epsilon, initial_value=initial
        )
        for (scale, epsilon), initial in itertools.product(pairs, INITIAL)
    }
    found = compare(
        mdp, tried, steps=steps, num_seeds=4, first_seed=TUNED_WITH, max_episode_steps=longest
    )
    best = int(found.goals[:, :, -1].mean(axis=1).argmax())
    print(f": {found.names[best]}", flush=True)
    return tried[found.names[best]]


def full(beside: Path) -> dict[str, ExplorationComparison]:
    """All worlds; what was measured is saved beside the picture."""
    rooms = grid(ROOMS)
    room = worlds.load(ROOM, seed=0)
    found = {}
    sparse_rooms = rooms.replace(R=np.maximum(rooms.R, 0.0))
    for title, mdp, steps, longest in (
        ("nine rooms, only the goal pays", sparse_rooms, 20_000, 200),
        ("nine rooms, walls cost 1", rooms, 20_000, 200),
        (f"walls cost 1, {SCREENS} screens of noise", noisy(rooms, SCREENS), 40_000, 200),
        ("MiniGrid, four rooms", room, 30_000, 300),
    ):
        print(f"{title}: {mdp}; the best of eight settings each:")
        best = {}
        for name, arm in arms(mdp).items():
            print(f"  {name}", end="", flush=True)
            best[name] = tuned(mdp, arm, steps, longest)
        found[title] = compare(mdp, best, steps=steps, num_seeds=10, max_episode_steps=longest)
        print(*format_comparison(found[title]), sep="\n", flush=True)
        found[title].save(beside.with_name(f"{beside.stem}-{len(found)}.npz"))
    return found


def quick() -> dict[str, ExplorationComparison]:
    rooms = grid(ROOMS)
    cheap = {name: arm for name, arm in arms(rooms).items() if name != OWN}
    found = compare(rooms, cheap, steps=6_000, num_seeds=3)
    print(*format_comparison(found), sep="\n")
    return {"nine rooms": found}


def by_hand() -> None:
    """The wrapper itself, around an environment that knows nothing of all this."""
    d = exact.bisimulation(worlds.load("MiniGrid-Empty-5x5-v0", seed=0, discount=DISTANCE_DISCOUNT))
    room = uses.bonus(gymnasium.make("MiniGrid-Empty-5x5-v0"), d, scale=0.1)
    room.reset(seed=0)
    for action in (2, 2, 1, 2):
        *_, info = room.step(action)
        print(f"action {action}: {info['reward']:g} and a bonus of {info['bonus']:.4f}")
    print(room.visits)


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--full", action="store_true", help="all worlds, tuned, 10 keys")
    options.add_argument("--png", type=Path, default=Path("explore.png"))
    given = options.parse_args()
    by_hand()
    measured = full(given.png) if given.full else quick()
    save_figure(plot_exploration(measured), given.png)
    print(f"saved {given.png}")
