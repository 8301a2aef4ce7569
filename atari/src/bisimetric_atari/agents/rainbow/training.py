"""Train Rainbow: many games on the CPU cores, replay buffer and updates on the device.

The device updates while the games take a step. A checkpoint does not hold the replay buffer, which
takes gigabytes: a resumed run first fills it again with its own exploration rate.
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
from bisimetric.errors import InputError, require_integer
from bisimetric.learned.training import get_free_device_memory
from bisimetric_atari.agents.rainbow import files, learner
from bisimetric_atari.agents.rainbow.learner import RainbowConfig, RainbowState
from bisimetric_atari.agents.rainbow.network import (
    NUM_FRAMES,
    Parameters,
    RainbowAgent,
    RainbowNetwork,
)
from bisimetric_atari.agents.rainbow.replay import (
    FRAME_BYTES,
    ReplayBuffer,
    ReplayRow,
    append_row,
    create_buffer,
)
from bisimetric_atari.games.environments import AtariGames, Game, find_game

History = dict[str, NDArray[np.float64]]

CHECKPOINT_SECONDS = 60.0
"""Seconds between two checkpoints."""


@dataclasses.dataclass(frozen=True, eq=False)
class RainbowRun:
    """A training run: its state, configuration and history.

    Attributes:
        game: name of the game.
        network: the network.
        config: the hyperparameters.
        seed: of weights, games, exploration and batches.
        state: parameters of both networks, and the state of Adam.
        steps: agent steps so far.
        seconds: duration of these steps.
        history: training curves, (records,) by name: `step`, `score` (mean return of the episodes
            that ended, NaN without any), `games` (their number), `loss`, `random` (the exploration
            rate) and `seconds`.

    >>> [field.name for field in dataclasses.fields(RainbowRun)][:3]
    ['game', 'network', 'config']
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
        """The greedy agent of the current parameters."""
        return RainbowAgent(f"rainbow of {self.game}", self.network, self.state.parameters)


class _Metrics(NamedTuple):
    """Scores and losses since the last record."""

    scores: list[float]
    losses: list[Array]


def train(
    game: str | Game,
    *,
    steps: int = 10_000_000,
    seed: int = 0,
    config: RainbowConfig | None = None,
    log_every: int = 100_000,
    minutes: float | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    resume: str | os.PathLike[str] | None = None,
) -> RainbowRun:
    """Train a Rainbow agent.

    Args:
        game: the game or its name.
        steps: agent steps in all, those before `resume` included.
        seed: of weights, games, exploration and batches.
        config: hyperparameters; default: `RainbowConfig()`.
        log_every: agent steps between two records of the history.
        minutes: stop after this duration.
        checkpoint: file for a checkpoint every minute, and at the end, interrupted or not.
        resume: checkpoint to continue from.

    Returns:
        The run at its last record.

    Raises:
        InputError: if an argument is out of range, or `resume` is of another run or has all steps.
        InsufficientMemory: if replay buffer, games or a batch do not fit into memory.

    >>> config = RainbowConfig(num_envs=2, batch_size=2, samples_per_insert=1, capacity=40,
    ...                        learning_starts=8)
    >>> train("Pong", steps=4, log_every=4, config=config).steps
    4
    """
    config = config or RainbowConfig()
    caller = "rainbow.train"
    steps = require_integer(caller, "steps", steps, 1)
    log_every = require_integer(caller, "log_every", log_every, 1)
    game = find_game(game)
    if checkpoint is not None:
        require_writable(checkpoint)
    network = RainbowNetwork(len(game.actions))
    _require_memory(network, config)
    init_key, run_key = jax.random.split(jax.random.key(seed))
    state = learner.init_state(network, config, init_key)
    run = RainbowRun(game.name, network, config, seed, state, 0, 0.0, {})
    if resume is not None:
        run = files.load_checkpoint(resume, run)
    if run.steps >= steps:
        raise InputError(
            f"is {steps:,}, those before `resume` included, and {resume} has {run.steps:,}",
            caller=caller,
            argument="steps",
            remedy="give more steps",
        )
    initial = run
    saved = time.perf_counter()
    games = AtariGames(game, config.num_envs, seed=seed + initial.steps)
    trainer = _RainbowTrainer(initial, games, run_key)
    try:
        with show_progress(1.0, f"training on {game.name}") as progress:
            while run.steps < steps:
                trainer.advance(min(log_every, steps - run.steps))
                # One assignment: after an interrupt, state and history are of the same step.
                run = trainer.take_snapshot()
                progress.set_position(run.steps / steps, _format_progress(run))
                if checkpoint is not None and time.perf_counter() - saved > CHECKPOINT_SECONDS:
                    saved = time.perf_counter()
                    files.save_checkpoint(checkpoint, run)
                if minutes is not None and run.seconds - initial.seconds > 60 * minutes:
                    break
    finally:
        if checkpoint is not None and run is not initial:
            files.save_checkpoint(checkpoint, run)
    return run


class _RainbowTrainer:
    """Games, replay buffer and learner state of a run; `take_snapshot` copies them."""

    def __init__(self, initial: RainbowRun, games: AtariGames, key: Array) -> None:
        self.initial, self.games, self.key = initial, games, key
        self.start_time = time.perf_counter()
        self.config, self.network = initial.config, initial.network
        # Updates donate the buffers of the state; those of `initial` must survive.
        self.state = jax.tree.map(jnp.copy, initial.state)
        self.replay = create_buffer(self.config.num_rows, self.config.num_envs)
        self.steps, self.history = initial.steps, initial.history
        self.num_stored = 0
        self.last_step = games.reset()
        self.returns = np.zeros(self.config.num_envs)
        self.pending_row: ReplayRow | None = None

    def advance(self, num_steps: int) -> None:
        """Play and update for at least this many steps, and append a record."""
        metrics = _Metrics([], [])
        last = self.steps + num_steps
        while self.steps < last:
            self._step(metrics)
        self.history = append_record(
            self.history,
            {
                "step": self.steps,
                "score": float(np.mean(metrics.scores)) if metrics.scores else np.nan,
                "games": len(metrics.scores),
                "loss": float(jnp.stack(metrics.losses).mean()) if metrics.losses else np.nan,
                "random": self._epsilon(),
                "seconds": self.initial.seconds + time.perf_counter() - self.start_time,
            },
        )

    def take_snapshot(self) -> RainbowRun:
        """Copy the state at the last record."""
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
        """Take one step of all games while the device updates on the row before."""
        observations, is_first = self.last_step.observations, self.last_step.is_first
        is_reset = self.last_step.terminated | self.last_step.truncated
        epsilon, parameters = self._epsilon(), self.state.parameters
        action = np.asarray(
            select_actions(self.network, parameters, observations, self.key, self.steps, epsilon)
        )
        self.games.send(action)
        if self.pending_row is not None:
            self._learn(self.pending_row, metrics)
        self.last_step = step = self.games.receive()
        is_last = step.terminated | step.truncated
        rewards = np.clip(step.rewards, -1, 1).astype(np.float32)
        frames = observations[:, -1]
        self.pending_row = ReplayRow(frames, action, rewards, is_first, is_last, is_reset)
        self.returns += step.rewards
        metrics.scores.extend(self.returns[is_last].tolist())
        self.returns[is_last] = 0
        before, self.steps = self.steps, self.steps + self.config.num_envs
        period = self.config.target_update_period
        if self.steps // period > before // period:
            target = jax.tree.map(jnp.copy, self.state.parameters)
            self.state = self.state._replace(target_parameters=target)

    def _learn(self, row: ReplayRow, metrics: _Metrics) -> None:
        """Store a row; update once the replay buffer has its minimum size."""
        self.num_stored += self.config.num_envs
        if self.num_stored < self.config.learning_starts:
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
    """Select epsilon-greedy actions (n,)."""
    greedy = network.q_values(network.apply(parameters, observations)[0]).argmax(axis=1)
    action_key, explore_key, _ = _split_key(key, step)
    random = jax.random.randint(action_key, greedy.shape, 0, network.num_actions)
    return jnp.where(jax.random.uniform(explore_key, greedy.shape) < epsilon, random, greedy)


@functools.partial(jit, static_argnames="config", donate_argnames="replay")
def store_row(config: RainbowConfig, replay: ReplayBuffer, row: ReplayRow) -> ReplayBuffer:
    """Append a row to the replay buffer."""
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
    """Append a row and take the updates of this step; return their mean loss too."""
    replay = append_row(replay, row, config.lookahead)
    losses = []
    for update_key in jax.random.split(_split_key(key, step)[2], config.updates_per_step):
        state, replay, loss = learner.update(network, config, state, replay, update_key)
        losses.append(loss)
    return state, replay, jnp.stack(losses).mean()


def _split_key(key: Array, step: int) -> Array:
    """Return the keys of a step: random actions, exploration, updates."""
    return jax.random.split(jax.random.fold_in(key, step), 3)


def append_record(history: History, record: dict[str, float]) -> History:
    """Append one value to each curve."""
    return {name: np.append(history.get(name, []), value) for name, value in record.items()}


def _require_memory(network: RainbowNetwork, config: RainbowConfig) -> None:
    """Raise InsufficientMemory if games, a batch or the replay buffer do not fit."""
    steps = config.num_rows * config.num_envs
    free = get_free_device_memory()
    require_memory(
        f"rainbow.train: {config.num_envs:,} parallel games need",
        float(config.num_envs * NUM_FRAMES * FRAME_BYTES),
        "lower num_envs of the config",
    )
    # Both observations as bytes; the first also as floats, and its activations in all layers.
    per_transition = (2 + 4) * NUM_FRAMES * FRAME_BYTES + 4 * network.count_activations()
    require_memory(
        f"rainbow.train: a batch of {config.batch_size:,} transitions needs",
        float(config.batch_size * per_transition),
        "lower batch of the config",
        free,
    )
    require_memory(
        f"rainbow.train: a replay buffer of {steps:,} steps needs",
        float(steps * (FRAME_BYTES + 16)),
        "lower capacity of the config",
        free,
    )


def _format_progress(run: RainbowRun) -> str:
    return f"score {run.history['score'][-1]:.4g} after {run.steps:,} steps"
