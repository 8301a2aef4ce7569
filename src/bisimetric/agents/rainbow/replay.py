"""Replay on the device: single frames, one row a step of all games, drawn by priority.

A row holds one step of each of `count` games: the newest frame, the action, the reward, and whether
the game began there, ended with it, or had ended before: it then rested. Stacks of frames and
returns over n steps are put together when they are drawn, so that a frame is stored once.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from bisimetric.agents.rainbow.network import FRAMES, SIDE

FRAME = SIDE * SIDE
"""The bytes of a frame."""


class Replay(NamedTuple):
    """The last `length` rows; a priority is 0 where no return of n steps is known.

    Attributes:
        frames: (length, count, 84, 84), the newest frame of what was seen.
        action, reward, began, ended, rested: (length, count).
        priority: (length, count).
        largest: the largest priority so far, which a step starts with.
        time: the rows so far.
    """

    frames: Array
    action: Array
    reward: Array
    began: Array
    ended: Array
    rested: Array
    priority: Array
    largest: Array
    time: Array


class Row(NamedTuple):
    """One step of all games; each (count, ...)."""

    frames: ArrayLike
    action: ArrayLike
    reward: ArrayLike
    began: ArrayLike
    ended: ArrayLike
    rested: ArrayLike


class Drawn(NamedTuple):
    """Steps that were drawn: what was seen, done and earned, and what was seen n steps later.

    Attributes:
        here, there: (b, 4, 84, 84).
        reward: (b,), the discounted sum of n rewards.
        discount: (b,), discount^n, or 0 where the game ended before.
        weight: (b,), at most 1; larger for what is drawn rarely.
        row, game: (b,), where they stand.
    """

    here: Array
    action: Array
    reward: Array
    there: Array
    discount: Array
    weight: Array
    row: Array
    game: Array


def empty(length: int, count: int) -> Replay:
    """Room for so many rows of so many games."""
    flags = jnp.zeros((length, count), bool)
    return Replay(
        frames=jnp.zeros((length, count, SIDE, SIDE), jnp.uint8),
        action=jnp.zeros((length, count), jnp.int32),
        reward=jnp.zeros((length, count)),
        began=flags,
        ended=flags.copy(),
        rested=flags.copy(),
        priority=jnp.zeros((length, count)),
        largest=jnp.ones(()),
        time=jnp.zeros((), jnp.int32),
    )


def added(replay: Replay, row: Row, ahead: int) -> Replay:
    """With one more row. The step `ahead` rows back can be drawn from here on.

    The oldest rows after it lose part of their stack of frames, and cannot be drawn any more.
    """
    length = len(replay.reward)
    place = replay.time % length
    ready = (replay.time - ahead) % length
    lost = (place + jnp.arange(FRAMES)) % length
    priority = replay.priority.at[lost].set(0.0)
    known = (replay.time >= ahead) & ~replay.rested[ready]
    return replay._replace(
        frames=replay.frames.at[place].set(row.frames),
        action=replay.action.at[place].set(row.action),
        reward=replay.reward.at[place].set(row.reward),
        began=replay.began.at[place].set(row.began),
        ended=replay.ended.at[place].set(row.ended),
        rested=replay.rested.at[place].set(row.rested),
        priority=priority.at[ready].set(jnp.where(known, replay.largest, 0.0)),
        time=replay.time + 1,
    )


def drawn(replay: Replay, key: Array, size: int, ahead: int, discount: float) -> Drawn:
    """`size` steps, each as likely as its priority: one from each of as many equal parts."""
    rows = replay.priority.sum(axis=1)
    upto = jnp.cumsum(rows)
    spots = (jnp.arange(size) + jax.random.uniform(key, (size,))) / size * upto[-1]
    row = jnp.minimum((upto <= spots[:, None]).sum(axis=1), len(rows) - 1)
    within = jnp.cumsum(replay.priority[row], axis=1)
    rest = spots - (upto[row] - rows[row])
    game = jnp.minimum((within <= rest[:, None]).sum(axis=1), within.shape[1] - 1)
    chance = replay.priority[row, game]
    # Rounding may draw a step of priority 0, whose return is not known.
    weight = jnp.where(chance > 0, 1 / jnp.sqrt(jnp.where(chance > 0, chance, 1.0)), 0.0)
    reward, alive = jnp.zeros(size), jnp.ones(size)
    for each in range(ahead):
        at = (row + each) % len(rows)
        reward += discount**each * alive * replay.reward[at, game]
        alive *= 1.0 - replay.ended[at, game]
    return Drawn(
        here=_stacks(replay, row, game),
        action=replay.action[row, game],
        reward=reward,
        there=_stacks(replay, (row + ahead) % len(rows), game),
        discount=discount**ahead * alive,
        weight=weight / weight.max(),
        row=row,
        game=game,
    )


def ranked(replay: Replay, draw: Drawn, priority: Array) -> Replay:
    """With the priorities (b,) of what was drawn; a step that cannot be drawn stays so."""
    before = replay.priority[draw.row, draw.game]
    after = jnp.where(before > 0, priority, 0.0)
    return replay._replace(
        priority=replay.priority.at[draw.row, draw.game].set(after),
        largest=jnp.maximum(replay.largest, after.max()),
    )


def _stacks(replay: Replay, row: Array, game: Array) -> Array:
    """The stacks (b, 4, 84, 84) that were seen; frames from before the game began are black."""
    seen = jnp.ones(row.shape, bool)
    frames = []
    for back in range(FRAMES):
        at = (row - back) % len(replay.reward)
        frames.append(jnp.where(seen[:, None, None], replay.frames[at, game], 0))
        seen &= ~replay.began[at, game]
    return jnp.stack(frames[::-1], axis=1)
