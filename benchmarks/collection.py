"""How fast experience of games is collected here: `python benchmarks/collection.py [GAME]`.

Against the bare vector environment of ALE with as many games on the same cores, which is given
actions that are ready; in one run, in turns, of which the best counts. What it takes to start the
consoles is left out. Steps a second of the processor, all cores together, are told too: where
others use the machine, that is the fairer number.

An agent that costs nothing plays; with `--agent shipped` the one that comes with the package does,
and the time of its network counts, but for compiling it.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import time
from typing import Any

import numpy as np
from ale_py.vector_env import AtariVectorEnv
from numpy.typing import NDArray

from bisimetric import agents, games
from bisimetric.games._collect import NUM_GAMES
from bisimetric.games.agent import IdleAgent
from bisimetric.games.environments import MAX_NOOPS

ROUNDS = 400
TURNS = 3
Clocks = tuple[float, float]


def clocks() -> Clocks:
    """The seconds of the wall clock, and those of all cores."""
    return time.perf_counter(), time.process_time()


def bare(name: str, count: int, rounds: int) -> tuple[Clocks, Clocks]:
    """The environment alone: observations that nobody looks at."""
    vector = AtariVectorEnv(
        games.find_game(name).rom,
        count,
        noop_max=MAX_NOOPS,
        use_fire_reset=False,
        reward_clipping=False,
    )
    vector.reset(seed=0)
    actions = np.zeros(count, np.int64)
    began = clocks()
    for _ in range(rounds):
        vector.step(actions)
    return began, clocks()


@dataclasses.dataclass(frozen=True)
class Timed:
    """An agent whose looks are timed: at the end of each, so that the first one may compile."""

    agent: games.Agent
    looks: list[Clocks] = dataclasses.field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.agent, name)

    def see(
        self, observations: NDArray[np.uint8], memory: Any, fresh: NDArray[np.bool_]
    ) -> tuple[games.AgentOutput, Any]:
        found = self.agent.act(observations, memory, fresh)
        self.looks.append(clocks())
        return found


def collected(agent: games.Agent, name: str, count: int, rounds: int) -> tuple[Clocks, Clocks]:
    timed = Timed(agent)
    games.collect(name, timed, steps=rounds * count, num_games=count, epsilon=0)
    # Both halves of the consoles have been looked at by then, and all is compiled.
    return timed.looks[1], timed.looks[-1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split(":")[0])
    parser.add_argument("game", nargs="?", default="Pong")
    parser.add_argument("--agent", choices=("idle", "shipped"), default="idle")
    parser.add_argument("--games", type=int, default=NUM_GAMES, help="side by side, an even number")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="steps of each of them")
    parser.add_argument("--turns", type=int, default=TURNS, help="the best of them counts")
    given = parser.parse_args()
    name, size = games.find_game(given.game).name, (given.games, given.rounds)
    agent = agents.pretrained(name) if given.agent == "shipped" else IdleAgent(name)
    steps = given.games * given.rounds
    best: dict[str, list[float]] = {"bare": [0.0, 0.0], "collected": [0.0, 0.0]}
    for _ in range(given.turns):
        for way, (began, ended) in (
            ("bare", bare(name, *size)),
            ("collected", collected(agent, name, *size)),
        ):
            speeds = [steps / (last - first) for first, last in zip(began, ended, strict=True)]
            best[way] = [max(pair) for pair in zip(best[way], speeds, strict=True)]
    print(
        f"{name}, {given.games} games on {os.cpu_count()} cores, {given.agent}; steps a second, "
        f"best of {given.turns}"
    )
    print("                   bare   collected   of it")
    for row, what in enumerate(("wall clock", "a core")):
        one, other = best["bare"][row], best["collected"][row]
        print(f"{what:<12} {one:>10,.0f} {other:>11,.0f} {other / one:>7.2f}")


if __name__ == "__main__":
    main()
