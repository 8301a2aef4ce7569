"""Does a distance help to explore? Grids, the same with noisy observations, and MiniGrid.

Needs `pip install 'bisimetric[worlds]'`. Run it with `python examples/exploration_bonus.py`: one
small environment, in seconds, writes bonus.png. With `--full` four environments, the arms tuned
first with equal effort, then 10 seeds each: some 35 minutes; the figure of docs/how-to/bonus.md.
With `--redraw` that figure is drawn again from the measurements that `--full` saved beside it.
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
from bisimetric.views.exploration import plot_exploration
from bisimetric.views.terminal import format_comparison
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
NUM_OBSERVATIONS = 4
ROOM = "MiniGrid-FourRooms-v0"
NONE, COUNTS = "no bonus", "counts"
EXACT, NEAREST = "distance", "distance, nearest visit"
BLIND, OWN = "distance without the goal", "distance of own steps"
INITIAL, SCALES, EPSILONS = (0.1, 1.0), (0.001, 0.01), (0.0, 0.02, 0.05, 0.2)
TUNING_SEED = 100


def add_noise(mdp: MDP, num_observations: int) -> MDP:
    """Add one of several observations per state, uniform at random after every step."""
    successors = sparse.hstack([mdp.P] * num_observations) / num_observations
    P = sparse.csr_array(sparse.vstack([successors] * num_observations))
    return MDP(P, np.tile(mdp.R, (num_observations, 1)), discount=mdp.discount)


def build_arms(mdp: MDP) -> dict[str, ExplorationArm]:
    """Build arms without bonus, with counts, and with d~: exact, without the goal, of own steps."""
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


def tune(mdp: MDP, arm: ExplorationArm, steps: int, max_episode_steps: int) -> ExplorationArm:
    """Select the best of eight settings by goals in four runs, whose seeds are not used again."""
    bonus = itertools.product(SCALES, EPSILONS[::2])
    pairs = [(0.0, epsilon) for epsilon in EPSILONS] if arm.source == "none" else list(bonus)
    tried = {
        f"scale {scale:g}, epsilon {epsilon:g}, initial {initial:g}": dataclasses.replace(
            arm, bonus_scale=scale, epsilon=epsilon, initial_value=initial
        )
        for (scale, epsilon), initial in itertools.product(pairs, INITIAL)
    }
    found = compare(
        mdp,
        tried,
        steps=steps,
        num_seeds=4,
        first_seed=TUNING_SEED,
        max_episode_steps=max_episode_steps,
    )
    best = int(found.goals[:, :, -1].mean(axis=1).argmax())
    print(f": {found.names[best]}", flush=True)
    return tried[found.names[best]]


TITLES = (
    "nine rooms, only the goal pays",
    "nine rooms, walls cost 1",
    f"walls cost 1, {NUM_OBSERVATIONS} noisy observations",
    "MiniGrid, four rooms",
)


def list_measurements(figure_path: Path) -> dict[str, Path]:
    """List the files of measurements beside a figure, by environment."""
    stem = figure_path.stem
    return {
        title: figure_path.with_name(f"{stem}-{number}.npz")
        for number, title in enumerate(TITLES, start=1)
    }


def run_full(figure_path: Path) -> dict[str, ExplorationComparison]:
    """Run all environments and save the measurements beside the figure."""
    rooms = grid(ROOMS)
    room = worlds.load(ROOM, seed=0)
    found = {}
    sparse_rooms = rooms.replace(R=np.maximum(rooms.R, 0.0))
    settings = (
        (sparse_rooms, 20_000, 200),
        (rooms, 20_000, 200),
        (add_noise(rooms, NUM_OBSERVATIONS), 40_000, 200),
        (room, 30_000, 300),
    )
    for (title, path), (mdp, steps, max_episode_steps) in zip(
        list_measurements(figure_path).items(), settings, strict=True
    ):
        print(f"{title}: {mdp}; the best of eight settings each:")
        best = {}
        for name, arm in build_arms(mdp).items():
            print(f"  {name}", end="", flush=True)
            best[name] = tune(mdp, arm, steps, max_episode_steps)
        found[title] = compare(
            mdp, best, steps=steps, num_seeds=10, max_episode_steps=max_episode_steps
        )
        print(*format_comparison(found[title]), sep="\n", flush=True)
        found[title].save(path)
    return found


def run_quick() -> dict[str, ExplorationComparison]:
    """Run one environment without tuning."""
    rooms = grid(ROOMS)
    cheap = {name: arm for name, arm in build_arms(rooms).items() if name != OWN}
    found = compare(rooms, cheap, steps=6_000, num_seeds=3)
    print(*format_comparison(found), sep="\n")
    return {"nine rooms": found}


def show_wrapper() -> None:
    """Print the rewards and bonuses of a wrapped environment."""
    d = exact.bisimulation(worlds.load("MiniGrid-Empty-5x5-v0", seed=0, discount=DISTANCE_DISCOUNT))
    room = uses.bonus(gymnasium.make("MiniGrid-Empty-5x5-v0"), d, bonus_scale=0.1)
    room.reset(seed=0)
    for action in (2, 2, 1, 2):
        *_, info = room.step(action)
        print(f"action {action}: {info['reward']:g} and a bonus of {info['bonus']:.4f}")
    print(room.visits)


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--full", action="store_true", help="all environments, tuned, 10 seeds")
    options.add_argument("--png", type=Path, default=Path("bonus.png"))
    options.add_argument("--redraw", action="store_true", help="draw what --full measured")
    given = options.parse_args()
    if given.redraw:
        files = list_measurements(given.png).items()
        measured = {title: ExplorationComparison.load(path) for title, path in files}
    else:
        show_wrapper()
        measured = run_full(given.png) if given.full else run_quick()
    save_figure(plot_exploration(measured), given.png)
    print(f"saved {given.png}")
