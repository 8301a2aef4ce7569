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

from bisimetric.agents.rainbow import files, learning
from bisimetric.agents.rainbow.agent import RainbowAgent
from bisimetric.agents.rainbow.learning import Learner
from bisimetric.agents.rainbow.network import FRAMES, Network, Parameters
from bisimetric.agents.rainbow.replay import FRAME, Replay, Row, added, empty
from bisimetric.agents.rainbow.settings import Settings
from bisimetric.errors import InputError, whole
from bisimetric.files import check_writable
from bisimetric.games.environments import Games
from bisimetric.games.names import game
from bisimetric.interrupts import jit
from bisimetric.learned.memory import free_device_memory
from bisimetric.memory import require_memory
from bisimetric.progress import bar

History = dict[str, NDArray[np.float64]]

KEEP = 60.0
"""Seconds between two checkpoints."""


@dataclasses.dataclass(frozen=True, eq=False)
class Training:
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
    network: Network
    settings: Settings
    key: int
    learner: Learner
    steps: int
    seconds: float
    history: History

    @property
    def agent(self) -> RainbowAgent:
        """The agent as it plays after these steps."""
        return RainbowAgent(f"rainbow of {self.game}", self.network, self.learner.parameters)


class _Record(NamedTuple):
    """What has happened since the last record."""

    scores: list[float]
    losses: list[Array]


def train(
    name: str,
    *,
    steps: int = 10_000_000,
    key: int = 0,
    settings: Settings | None = None,
    every: int = 100_000,
    minutes: float | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    resume: str | os.PathLike[str] | None = None,
) -> Training:
    """Trains an agent for a game, `steps` in all, those before `resume` included.

    Args:
        every: steps between two records of the history.
        minutes: stop earlier, when these have passed.
        checkpoint: a file to keep the run in, each minute and at the end, also at an early one.
        resume: such a file to go on from.
    """
    settings = settings or Settings()
    where = "rainbow.train"
    steps, every = whole(where, "steps", steps, 1), whole(where, "every", every, 1)
    played = game(name)
    if checkpoint is not None:
        check_writable(checkpoint)
    network = Network(len(played.actions))
    _check_room(network, settings)
    begun, kept = jax.random.split(jax.random.key(key))
    reached = Training(
        played.name,
        network,
        settings,
        key,
        learning.started(network, settings, begun),
        0,
        0.0,
        {},
    )
    if resume is not None:
        reached = files.resumed(resume, reached)
    if reached.steps >= steps:
        raise InputError(
            f"{where}: {resume} holds {reached.steps:,} steps and {steps:,} are asked for, those "
            "included; ask for more."
        )
    first = reached
    saved = time.perf_counter()
    run = _Run(first, Games(played, settings.count, key=key + first.steps), kept)
    try:
        with bar(1.0, f"training on {played.name}") as progress:
            while reached.steps < steps:
                run.advance(min(every, steps - reached.steps))
                # In one piece, so that an interrupt leaves a state with its own history.
                reached = run.reached()
                progress.at(reached.steps / steps, _note(reached))
                if checkpoint is not None and time.perf_counter() - saved > KEEP:
                    saved = time.perf_counter()
                    files.keep(checkpoint, reached)
                if minutes is not None and reached.seconds - first.seconds > 60 * minutes:
                    break
    finally:
        if checkpoint is not None and reached is not first:
            files.keep(checkpoint, reached)
    return reached


class _Run:
    """Games, replay and learner as they move; `reached` takes a picture of them."""

    def __init__(self, start: Training, games: Games, key: Array) -> None:
        self.start, self.games, self.key = start, games, key
        self.began = time.perf_counter()
        self.settings, self.network = start.settings, start.network
        # Its memory is given away at each update, and the start must stay what it is.
        self.learner = jax.tree.map(jnp.copy, start.learner)
        self.replay = empty(self.settings.length, self.settings.count)
        self.steps, self.history = start.steps, start.history
        self.filled = 0
        self.moves = games.reset()
        self.earned = np.zeros(self.settings.count)
        self.row: Row | None = None

    def advance(self, steps: int) -> None:
        """Plays and learns for at least so many steps, and makes a record of them."""
        record = _Record([], [])
        goal = self.steps + steps
        while self.steps < goal:
            self._step(record)
        self.history = longer(
            self.history,
            {
                "step": self.steps,
                "score": float(np.mean(record.scores)) if record.scores else np.nan,
                "games": len(record.scores),
                "loss": float(jnp.stack(record.losses).mean()) if record.losses else np.nan,
                "random": self._share(),
                "seconds": self.start.seconds + time.perf_counter() - self.began,
            },
        )

    def reached(self) -> Training:
        return dataclasses.replace(
            self.start,
            learner=jax.tree.map(jnp.copy, self.learner),
            steps=self.steps,
            seconds=float(self.history["seconds"][-1]),
            history=self.history,
        )

    def _share(self) -> float:
        return self.settings.random_share(self.steps)

    def _step(self, record: _Record) -> None:
        seen, began = self.moves.observations, self.moves.fresh
        rested = self.moves.terminated | self.moves.truncated
        action = np.asarray(
            acted(self.network, self.learner.parameters, seen, self.key, self.steps, self._share())
        )
        self.games.send(action)
        if self.row is not None:
            self._learn(self.row, record)
        self.moves = moves = self.games.receive()
        over = moves.terminated | moves.truncated
        paid = np.clip(moves.rewards, -1, 1).astype(np.float32)
        self.row = Row(seen[:, -1], action, paid, began, over, rested)
        self.earned += moves.rewards
        record.scores.extend(self.earned[over].tolist())
        self.earned[over] = 0
        before, self.steps = self.steps, self.steps + self.settings.count
        if self.steps // self.settings.period > before // self.settings.period:
            self.learner = self.learner._replace(
                target=jax.tree.map(jnp.copy, self.learner.parameters)
            )

    def _learn(self, row: Row, record: _Record) -> None:
        """Stores a row, and learns where there is enough to learn from."""
        self.filled += self.settings.count
        if self.filled < self.settings.start:
            self.replay = stored(self.settings, self.replay, row)
            return
        self.learner, self.replay, loss = improved(
            self.network, self.settings, self.learner, self.replay, row, self.key, self.steps
        )
        record.losses.append(loss)


@functools.partial(jit, static_argnames="network")
def acted(
    network: Network,
    parameters: Parameters,
    observations: Any,
    key: Array,
    step: int,
    share: float,
) -> Array:
    """The actions (n,): the best, but for a share of random ones."""
    best = network.values(network.apply(parameters, observations)[0]).argmax(axis=1)
    one, two, _ = _keys(key, step)
    anything = jax.random.randint(one, best.shape, 0, network.actions)
    return jnp.where(jax.random.uniform(two, best.shape) < share, anything, best)


@functools.partial(jit, static_argnames="settings", donate_argnames="replay")
def stored(settings: Settings, replay: Replay, row: Row) -> Replay:
    """The replay with one more row."""
    return added(replay, row, settings.ahead)


@functools.partial(
    jit, static_argnames=("network", "settings"), donate_argnames=("learner", "replay")
)
def improved(
    network: Network,
    settings: Settings,
    learner: Learner,
    replay: Replay,
    row: Row,
    key: Array,
    step: int,
) -> tuple[Learner, Replay, Array]:
    """After one more row, and the updates that follow it; with their mean loss."""
    replay = added(replay, row, settings.ahead)
    losses = []
    for each in jax.random.split(_keys(key, step)[2], settings.updates):
        learner, replay, loss = learning.updated(network, settings, learner, replay, each)
        losses.append(loss)
    return learner, replay, jnp.stack(losses).mean()


def _keys(key: Array, step: int) -> Array:
    """Three keys of a step: two to act by, one to learn by."""
    return jax.random.split(jax.random.fold_in(key, step), 3)


def longer(history: History, record: dict[str, float]) -> History:
    """A history with one more number by each name."""
    return {name: np.append(history.get(name, []), value) for name, value in record.items()}


def _check_room(network: Network, settings: Settings) -> None:
    """Raise TableTooLarge where the replay, the games or a batch cannot fit."""
    steps = settings.length * settings.count
    free = free_device_memory()
    require_memory(
        f"rainbow.train: {settings.count:,} games at once need",
        float(settings.count * FRAMES * FRAME),
        "lower the count of the Settings",
    )
    # What is seen and what is seen later as bytes; the first as floats, through all layers.
    each = (2 + 4) * FRAMES * FRAME + 4 * network.count_activations()
    require_memory(
        f"rainbow.train: a batch of {settings.batch:,} steps needs",
        float(settings.batch * each),
        "lower the batch of the Settings",
        free,
    )
    require_memory(
        f"rainbow.train: a replay of {steps:,} steps needs",
        float(steps * (FRAME + 16)),
        "lower the capacity of the Settings",
        free,
    )


def _note(reached: Training) -> str:
    return f"score {reached.history['score'][-1]:.4g} after {reached.steps:,} steps"
