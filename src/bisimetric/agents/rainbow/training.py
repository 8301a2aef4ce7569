"""Training Rainbow: many games on the processor's cores, replay and learning on the device.

While the games take a step the device learns from what came before it: whichever is slower sets
the pace. A run goes on from its checkpoint. Its replay, gigabytes of it, is not kept there: a run
that goes on first fills it anew by playing as it does.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from bisimetric._io import require_writable
from bisimetric._memory import require_memory
from bisimetric._progress import jit, show_progress
from bisimetric.agents.rainbow import files, learner
from bisimetric.agents.rainbow.learner import RainbowConfig, RainbowState
from bisimetric.agents.rainbow.network import NUM_FRAMES, Parameters, RainbowAgent, RainbowNetwork
from bisimetric.agents.rainbow.replay import (
    FRAME_BYTES,
    ReplayBuffer,
    ReplayRow,
    append_row,
    create_buffer,
)
from bisimetric.errors import InputError, require_integer
from bisimetric.games.environments import AtariGames, find_game
from bisimetric.learned.training import get_free_device_memory

History = dict[str, NDArray[np.float64]]

CHECKPOINT_SECONDS = 60.0
"""Seconds between two checkpoints."""


@dataclasses.dataclass(frozen=True, eq=False)
class RainbowRun:
    """A run: what it has learned, and how it went.

    Attributes:
        game, network, settings, key: what is learned and how.
        learner: the networks, and Adam's memory.
        steps: how many it has taken.
        seconds: how long they took.
        history: what was measured, (records,) by name: `step`, `score` (the mean of the games that
            ended, NaN where none did), `games`, `loss`, `random` and `seconds`.
    """

    game: str
    network: RainbowNetwork
    config: RainbowConfig
    seed: int
    state: RainbowState
    steps: int
    seconds: float
    history: History

    @property
    def agent(self) -> RainbowAgent:
        """The agent as it plays after these steps."""
        return RainbowAgent(f"rainbow of {self.game}", self.network, self.state.parameters)


class _Metrics(NamedTuple):
    """What has happened since the last record."""

    scores: list[float]
    losses: list[Array]


def train(
    name: str,
    *,
    steps: int = 10_000_000,
    seed: int = 0,
    config: RainbowConfig | None = None,
    log_every: int = 100_000,
    max_minutes: float | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    resume: str | os.PathLike[str] | None = None,
) -> RainbowRun:
    """Trains an agent for a game, `steps` in all, those before `resume` included.

    Args:
        every: steps between two records of the history.
        minutes: stop earlier, when these have passed.
        checkpoint: a file to keep the run in, each minute and at the end, also at an early one.
        resume: such a file to go on from.
    """
    config = config or RainbowConfig()
    where = "rainbow.train"
    steps, log_every = (
        require_integer(where, "steps", steps, 1),
        require_integer(where, "every", log_every, 1),
    )
    played = find_game(name)
    if checkpoint is not None:
        require_writable(checkpoint)
    network = RainbowNetwork(len(played.actions))
    _require_memory(network, config)
    begun, kept = jax.random.split(jax.random.key(seed))
    reached = RainbowRun(
        played.name,
        network,
        config,
        seed,
        learner.init_state(network, config, begun),
        0,
        0.0,
        {},
    )
    if resume is not None:
        reached = files.load_checkpoint(resume, reached)
    if reached.steps >= steps:
        raise InputError(
            f"{where}: {resume} holds {reached.steps:,} steps and {steps:,} are asked for, those "
            "included; ask for more."
        )
    first = reached
    saved = time.perf_counter()
    run = _RainbowTrainer(
        first, AtariGames(played, config.num_games, seed=seed + first.steps), kept
    )
    try:
        with show_progress(1.0, f"training on {played.name}") as progress:
            while reached.steps < steps:
                run.advance(min(log_every, steps - reached.steps))
                # In one piece, so that an interrupt leaves a state with its own history.
                reached = run.take_snapshot()
                progress.set_position(reached.steps / steps, _format_progress(reached))
                if checkpoint is not None and time.perf_counter() - saved > CHECKPOINT_SECONDS:
                    saved = time.perf_counter()
                    files.save_checkpoint(checkpoint, reached)
                if max_minutes is not None and reached.seconds - first.seconds > 60 * max_minutes:
                    break
    finally:
        if checkpoint is not None and reached is not first:
            files.save_checkpoint(checkpoint, reached)
    return reached


class _RainbowTrainer:
    """Games, replay and learner as they move; `reached` takes a picture of them."""

    def __init__(self, initial: RainbowRun, games: AtariGames, key: Array) -> None:
        self.initial, self.games, self.key = initial, games, key
        self.start_time = time.perf_counter()
        self.config, self.network = initial.config, initial.network
        # Its memory is given away at each update, and the start must stay what it is.
        self.state = jax.tree.map(jnp.copy, initial.state)
        self.replay = create_buffer(self.config.num_rows, self.config.num_games)
        self.steps, self.history = initial.steps, initial.history
        self.num_stored = 0
        self.last_step = games.reset()
        self.returns = np.zeros(self.config.num_games)
        self.pending_row: ReplayRow | None = None

    def advance(self, num_steps: int) -> None:
        """Plays and learns for at least so many steps, and makes a record of them."""
        record = _Metrics([], [])
        goal = self.steps + num_steps
        while self.steps < goal:
            self._step(record)
        self.history = append_record(
            self.history,
            {
                "step": self.steps,
                "score": float(np.mean(record.scores)) if record.scores else np.nan,
                "games": len(record.scores),
                "loss": float(jnp.stack(record.losses).mean()) if record.losses else np.nan,
                "random": self._epsilon(),
                "seconds": self.initial.seconds + time.perf_counter() - self.start_time,
            },
        )

    def take_snapshot(self) -> RainbowRun:
        return dataclasses.replace(
            self.initial,
            state=jax.tree.map(jnp.copy, self.state),
            steps=self.steps,
            seconds=float(self.history["seconds"][-1]),
            history=self.history,
        )

    def _epsilon(self) -> float:
        return self.config.compute_epsilon(self.steps)

    def _step(self, metrics: _Metrics) -> None:
        seen, began = self.last_step.observations, self.last_step.is_first
        rested = self.last_step.terminated | self.last_step.truncated
        action = np.asarray(
            select_actions(
                self.network, self.state.parameters, seen, self.key, self.steps, self._epsilon()
            )
        )
        self.games.send(action)
        if self.pending_row is not None:
            self._learn(self.pending_row, metrics)
        self.last_step = moves = self.games.receive()
        over = moves.terminated | moves.truncated
        paid = np.clip(moves.rewards, -1, 1).astype(np.float32)
        self.pending_row = ReplayRow(seen[:, -1], action, paid, began, over, rested)
        self.returns += moves.rewards
        metrics.scores.extend(self.returns[over].tolist())
        self.returns[over] = 0
        before, self.steps = self.steps, self.steps + self.config.num_games
        if (
            self.steps // self.config.target_update_period
            > before // self.config.target_update_period
        ):
            self.state = self.state._replace(target=jax.tree.map(jnp.copy, self.state.parameters))

    def _learn(self, row: ReplayRow, metrics: _Metrics) -> None:
        """Stores a row, and learns where there is enough to learn from."""
        self.num_stored += self.config.num_games
        if self.num_stored < self.config.min_replay_size:
            self.replay = store_row(self.config, self.replay, row)
            return
        self.state, self.replay, loss = store_and_update(
            self.network, self.config, self.state, self.replay, row, self.key, self.steps
        )
        metrics.losses.append(loss)


@functools.partial(jit, static_argnames="network")
def select_actions(
    network: RainbowNetwork,
    parameters: Parameters,
    observations: Any,
    key: Array,
    step: int,
    epsilon: float,
) -> Array:
    """The actions (n,): the best, but for a share of random ones."""
    best = network.q_values(network.apply(parameters, observations)[0]).argmax(axis=1)
    one, two, _ = _split_key(key, step)
    anything = jax.random.randint(one, best.shape, 0, network.num_actions)
    return jnp.where(jax.random.uniform(two, best.shape) < epsilon, anything, best)


@functools.partial(jit, static_argnames="config", donate_argnames="replay")
def store_row(config: RainbowConfig, replay: ReplayBuffer, row: ReplayRow) -> ReplayBuffer:
    """The replay with one more row."""
    return append_row(replay, row, config.lookahead)


@functools.partial(jit, static_argnames=("network", "config"), donate_argnames=("state", "replay"))
def store_and_update(
    network: RainbowNetwork,
    config: RainbowConfig,
    state: RainbowState,
    replay: ReplayBuffer,
    row: ReplayRow,
    key: Array,
    step: int,
) -> tuple[RainbowState, ReplayBuffer, Array]:
    """After one more row, and the updates that follow it; with their mean loss."""
    replay = append_row(replay, row, config.lookahead)
    losses = []
    for each in jax.random.split(_split_key(key, step)[2], config.updates_per_step):
        state, replay, loss = learner.update(network, config, state, replay, each)
        losses.append(loss)
    return state, replay, jnp.stack(losses).mean()


def _split_key(key: Array, step: int) -> Array:
    """Three keys of a step: two to act by, one to learn by."""
    return jax.random.split(jax.random.fold_in(key, step), 3)


def append_record(history: History, record: dict[str, float]) -> History:
    """A history with one more number by each name."""
    return {name: np.append(history.get(name, []), value) for name, value in record.items()}


def _require_memory(network: RainbowNetwork, config: RainbowConfig) -> None:
    """Raise TableTooLarge where the replay, the games or a batch cannot fit."""
    steps = config.num_rows * config.num_games
    free = get_free_device_memory()
    require_memory(
        f"rainbow.train: {config.num_games:,} games at once need",
        float(config.num_games * NUM_FRAMES * FRAME_BYTES),
        "lower the count of the Settings",
    )
    # What is seen and what is seen later as bytes; the first as floats, through all layers.
    each = (2 + 4) * NUM_FRAMES * FRAME_BYTES + 4 * network.count_activations()
    require_memory(
        f"rainbow.train: a batch of {config.batch:,} steps needs",
        float(config.batch * each),
        "lower the batch of the Settings",
        free,
    )
    require_memory(
        f"rainbow.train: a replay of {steps:,} steps needs",
        float(steps * (FRAME_BYTES + 16)),
        "lower the capacity of the Settings",
        free,
    )


def _format_progress(run: RainbowRun) -> str:
    return f"score {run.history['score'][-1]:.4g} after {run.steps:,} steps"
