"""How fast experience of games is collected here: `python benchmarks/collection.py [GAME]`.

Against the bare vector environment of ALE with as many games on the same cores, which is given
actions that are ready; in one run, in turns, the best of three. What it takes to start the consoles
is left out. Steps a second of the processor, all cores together, are told too: where others use the
machine, that is the fairer number.
"""

from __future__ import annotations

import dataclasses
import os
import sys
import time

import numpy as np
from ale_py.vector_env import AtariVectorEnv
from numpy.typing import NDArray

from bisimetric import games
from bisimetric.games.environments import NOOPS
from bisimetric.games.experience import COUNT
from bisimetric.games.idle import Idle

STEPS = 400 * COUNT
TURNS = 3
Clocks = tuple[float, float]


def clocks() -> Clocks:
    """The seconds of the wall clock, and those of all cores."""
    return time.perf_counter(), time.process_time()


def bare(name: str) -> tuple[Clocks, Clocks]:
    """The environment alone: observations that nobody looks at."""
    vector = AtariVectorEnv(
        games.game(name).rom, COUNT, noop_max=NOOPS, use_fire_reset=False, reward_clipping=False
    )
    vector.reset(seed=0)
    actions = np.zeros(COUNT, np.int64)
    began = clocks()
    for _ in range(STEPS // COUNT):
        vector.step(actions)
    return began, clocks()


@dataclasses.dataclass(frozen=True)
class Timed(Idle):
    """An agent that keeps the time of each look."""

    looks: list[Clocks] = dataclasses.field(default_factory=list)

    def see(
        self, observations: NDArray[np.uint8], memory: None, fresh: NDArray[np.bool_]
    ) -> tuple[games.Seen, None]:
        self.looks.append(clocks())
        return super().see(observations, memory, fresh)


def collected(name: str) -> tuple[Clocks, Clocks]:
    agent = Timed(name)
    games.collect(name, agent, steps=STEPS, epsilon=0)
    return agent.looks[0], agent.looks[-1]


def main() -> None:
    name = games.game(sys.argv[1] if len(sys.argv) > 1 else "Pong").name
    best: dict[str, list[float]] = {"bare": [0.0, 0.0], "collected": [0.0, 0.0]}
    for _ in range(TURNS):
        for way, run in (("bare", bare), ("collected", collected)):
            began, ended = run(name)
            speeds = [STEPS / (last - first) for first, last in zip(began, ended, strict=True)]
            best[way] = [max(pair) for pair in zip(best[way], speeds, strict=True)]
    print(f"{name}, {COUNT} games on {os.cpu_count()} cores, idle; steps a second, best of {TURNS}")
    print("                   bare   collected   of it")
    for row, what in enumerate(("wall clock", "a core")):
        one, other = best["bare"][row], best["collected"][row]
        print(f"{what:<12} {one:>10,.0f} {other:>11,.0f} {other / one:>7.2f}")


if __name__ == "__main__":
    main()
