"""Learn d~ and d^pi from MiniGrid images: `python benchmarks/images.py`, also on a GPU.

A state is the image (width, height, 3) of the whole room, as MiniGrid encodes it; the terminal
state is an image of zeros. Each layout is learned by itself, with the default convolutional
encoder, from its known model or from sampled transitions, and compared with the exact distance on
all pairs of states. Hyperparameters of pair Q-learning were chosen on the first layout, those of
model-based learning on LavaCrossing with 169 states; the others are held out.

    python benchmarks/images.py --transitions 40000 --updates 4000 --seeds 1  # on a CPU
    python benchmarks/images.py --transitions 40000 --updates 12000           # on a GPU
    python benchmarks/images.py --algorithm pair-q                            # on a GPU
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from typing import Any

import gymnasium
import jax
import numpy as np
from minigrid.wrappers import FullyObsWrapper
from numpy.typing import NDArray

from bisimetric import MDP, Transitions, exact, learned, planning, worlds
from bisimetric.learned import MetricNetwork, PairQConfig, RunOptions
from bisimetric.learned.evaluation import compute_distances, compute_errors
from bisimetric.mdp import TERMINAL
from bisimetric.worlds import minigrid_states

LAYOUTS = (
    "MiniGrid-Empty-5x5-v0",
    "MiniGrid-Empty-6x6-v0",
    "MiniGrid-DoorKey-5x5-v0",
    "MiniGrid-DoorKey-5x5-v0:1",
    "MiniGrid-SimpleCrossingS9N1-v0",
    "MiniGrid-SimpleCrossingS9N2-v0:1",
    "MiniGrid-LavaCrossingS9N1-v0",
    "MiniGrid-DistShift1-v0",
    "MiniGrid-LavaCrossingS9N1-v0:2:13",
)
"""Environments and, after colons, the seed of the layout, else 0, and the side of the room."""


def load_images(layout: str, discount: float) -> tuple[MDP, NDArray[np.float32]]:
    """Return the MDP of a layout and the image of each of its states."""
    name, seed, side = (*layout.split(":"), "", "")[:3]
    images: dict[Any, NDArray[Any]] = {}

    def state_of(environment: Any, observation: Any) -> Any:
        state = minigrid_states.read_state(environment.unwrapped)
        images[state] = observation["image"]
        return state

    wrapper: Any = FullyObsWrapper
    options: dict[str, Any] = {"size": int(side)} if side else {}
    mdp = worlds.enumerate_environment(
        wrapper(gymnasium.make(name, **options).unwrapped),
        seed=int(seed or 0),
        discount=discount,
        state_of=state_of,
    )
    blank = np.zeros_like(next(iter(images.values())))
    by_name = dict(zip(minigrid_states.name_states(list(images)), images.values(), strict=True))
    names = mdp.names or ()
    points = np.stack([by_name[each] if each != TERMINAL else blank for each in names])
    points = points.astype(np.float32)
    if len(np.unique(points.reshape(len(points), -1), axis=0)) < len(points):
        raise ValueError(f"{layout}: two states have the same image")
    return mdp, points


def sample_transitions(
    mdp: MDP, points: NDArray[np.float32], policy: NDArray[np.int64] | None, steps: int, seed: int
) -> Transitions:
    """Return transitions from uniform states, with uniform actions or those of a policy."""
    rng = np.random.default_rng(seed)
    states = rng.integers(0, mdp.num_states, steps)
    actions = rng.integers(0, mdp.num_actions, steps) if policy is None else policy[states]
    return Transitions(
        points[states],
        actions,
        mdp.R[states, actions],
        points[mdp.next_state[states, actions]],
        np.zeros(steps, bool),
    )


def run(
    kind: Any, layout: str, discount: float, seeds: Sequence[int], options: argparse.Namespace
) -> dict[str, Any]:
    """Learn one distance of one layout, and return its errors against the exact one."""
    mdp, points = load_images(layout, discount)
    policy = None
    if kind == "bisimulation":
        reference = exact.bisimulation(mdp)
    else:
        policy = np.asarray(planning.greedy_policy(mdp, planning.optimal_values(mdp)))
        reference = exact.on_policy(mdp, policy)
    source: Any
    config: Any
    data = None
    start_time = time.perf_counter()
    if options.transitions:
        data = sample_transitions(mdp, points, policy, options.transitions, seed=0)
    if options.algorithm == "model-based":
        source = (
            learned.source_from_model(kind, mdp, policy, discount=discount, points=points)
            if data is None
            else learned.source_from_model(kind, data, discount=discount)
        )
        # Larger groups than the default: distances of a room differ more than those of a grid.
        network = MetricNetwork(tuple(options.hidden), num_groups=options.groups, group_size=16)
        config = learned.ModelBasedConfig(network, batch_size=64, learning_rate=3e-3)
    else:
        network = MetricNetwork(tuple(options.hidden), num_groups=options.groups)
        config = PairQConfig(network, batch_size=options.batch_size)
        source = (
            learned.source_from_mdp(kind, mdp, policy, points=points)
            if data is None
            else learned.source_from_transitions(kind, data)
        )
    result = learned.fit(
        kind,
        source,
        discount=discount,
        updates=options.updates,
        seeds=seeds,
        config=config,
        options=RunOptions(log_every=max(options.updates // 10, 1)),
    )
    seconds = time.perf_counter() - start_time
    features = source.scaling(points.reshape(len(points), *(source.scaling.shape or (-1,))))
    errors = [
        compute_errors(
            jax.numpy.asarray(reference.values, jax.numpy.float32),
            compute_distances(result.network, result.parameters(i), features, features),
        )
        for i in range(len(seeds))
    ]
    return {
        "layout": layout,
        "kind": kind,
        "states": mdp.num_states,
        "largest": float(reference.values.max()),
        "correlation": [float(each["correlation"]) for each in errors],
        "error": [float(each["error"]) for each in errors],
        "seconds": round(seconds, 1),
    }


def main() -> None:
    """Run all layouts and print a table, and optionally write the numbers as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--layouts", nargs="*", default=list(LAYOUTS))
    parser.add_argument("--kinds", nargs="*", default=["bisimulation", "on_policy"])
    parser.add_argument("--algorithm", choices=["model-based", "pair-q"], default="model-based")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--updates", type=int, default=24_000)
    parser.add_argument("--discount", type=float, default=0.9)
    parser.add_argument("--hidden", type=int, nargs="*", default=[256, 256])
    parser.add_argument("--groups", type=int, default=64)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--transitions", type=int, default=0, help="0: the model is known")
    parser.add_argument("--json", help="a file for the numbers")
    options = parser.parse_args()
    print("| layout | distance | states | correlation | largest error | largest distance | time |")
    print("|---|---|---|---|---|---|---|")
    rows = []
    for layout in options.layouts:
        for kind in options.kinds:
            row = run(kind, layout, options.discount, range(options.seeds), options)
            rows.append(row)
            print(
                f"| {row['layout']} | {row['kind']} | {row['states']} "
                f"| {min(row['correlation']):.4f} to {max(row['correlation']):.4f} "
                f"| {max(row['error']):.3g} | {row['largest']:.3g} | {row['seconds']:.0f} s |",
                flush=True,
            )
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"options": vars(options), "rows": rows}, file, indent=1)


if __name__ == "__main__":
    main()
