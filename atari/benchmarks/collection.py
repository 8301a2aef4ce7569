"""Speed of collecting transitions of games: `python atari/benchmarks/collection.py [GAME]`.

Compares `games.collect` with ALE's bare vector environment with the same number of games and
precomputed actions, alternating in one process; the best repetition counts. Starting the emulators
is excluded. Steps per second of CPU time, summed over the cores, are reported too: the fairer
number on a shared machine.

The idle agent costs nothing; with `--agent pretrained` the included one plays, and the time of its
network counts, compilation excluded.
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

from bisimetric_atari import agents, games
from bisimetric_atari.games._collect import NUM_ENVS
from bisimetric_atari.games.environments import MAX_NOOPS

ROUNDS = 400
REPETITIONS = 3
Clocks = tuple[float, float]


def read_clocks() -> Clocks:
    """Return the seconds of the wall clock, and of all cores."""
    return time.perf_counter(), time.process_time()


def time_environment(name: str, num_envs: int, rounds: int) -> tuple[Clocks, Clocks]:
    """Time the bare environment without an agent."""
    vector = AtariVectorEnv(
        games.find_game(name).rom,
        num_envs,
        noop_max=MAX_NOOPS,
        use_fire_reset=False,
        reward_clipping=False,
    )
    vector.reset(seed=0)
    actions = np.zeros(num_envs, np.int64)
    start = read_clocks()
    for _ in range(rounds):
        vector.step(actions)
    return start, read_clocks()


@dataclasses.dataclass(frozen=True)
class TimedAgent:
    """An agent with the clocks at the end of each call, so that the first call may compile."""

    agent: games.Agent
    clocks: list[Clocks] = dataclasses.field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.agent, name)

    def act(
        self, observations: NDArray[np.uint8], state: Any, is_first: NDArray[np.bool_]
    ) -> tuple[games.AgentOutput, Any]:
        result = self.agent.act(observations, state, is_first)
        self.clocks.append(read_clocks())
        return result


def time_collection(
    agent: games.Agent, name: str, num_envs: int, rounds: int
) -> tuple[Clocks, Clocks]:
    """Time `games.collect` from its third call of the agent on."""
    timed = TimedAgent(agent)
    games.collect(name, timed, steps=rounds * num_envs, num_envs=num_envs, epsilon=0)
    # The agent was called for both halves of the games: everything is compiled.
    return timed.clocks[1], timed.clocks[-1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split(":")[0])
    parser.add_argument("game", nargs="?", default="Pong")
    parser.add_argument("--agent", choices=("idle", "pretrained"), default="idle")
    parser.add_argument("--num-envs", type=int, default=NUM_ENVS, help="parallel games, even")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="steps per game")
    parser.add_argument("--repetitions", type=int, default=REPETITIONS, help="the best one counts")
    arguments = parser.parse_args()
    name, size = games.find_game(arguments.game).name, (arguments.num_envs, arguments.rounds)
    pretrained = arguments.agent == "pretrained"
    agent = agents.pretrained(name) if pretrained else games.IdleAgent(name)
    steps = arguments.num_envs * arguments.rounds
    best: dict[str, list[float]] = {"bare": [0.0, 0.0], "collected": [0.0, 0.0]}
    for _ in range(arguments.repetitions):
        for kind, (start, stop) in (
            ("bare", time_environment(name, *size)),
            ("collected", time_collection(agent, name, *size)),
        ):
            speeds = [steps / (last - first) for first, last in zip(start, stop, strict=True)]
            best[kind] = [max(pair) for pair in zip(best[kind], speeds, strict=True)]
    print(
        f"{name}, {arguments.num_envs} games on {os.cpu_count()} cores, {arguments.agent}; steps "
        f"per second, best of {arguments.repetitions}"
    )
    print("                   bare   collected   ratio")
    for row, clock in enumerate(("wall clock", "CPU time")):
        bare, collected = best["bare"][row], best["collected"][row]
        print(f"{clock:<12} {bare:>10,.0f} {collected:>11,.0f} {collected / bare:>7.2f}")


if __name__ == "__main__":
    main()
