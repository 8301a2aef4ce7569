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

from bisimetric.agents.rainbow.network import FRAME_SIZE, NUM_FRAMES

FRAME_BYTES = FRAME_SIZE * FRAME_SIZE
"""The bytes of a frame."""


class ReplayBuffer(NamedTuple):
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
    is_first: Array
    is_last: Array
    is_reset: Array
    priority: Array
    max_priority: Array
    num_added: Array


class ReplayRow(NamedTuple):
    """One step of all games; each (count, ...)."""

    frames: ArrayLike
    action: ArrayLike
    reward: ArrayLike
    is_first: ArrayLike
    is_last: ArrayLike
    is_reset: ArrayLike


class ReplayBatch(NamedTuple):
    """Steps that were drawn: what was seen, done and earned, and what was seen n steps later.

    Attributes:
        here, there: (b, 4, 84, 84).
        reward: (b,), the discounted sum of n rewards.
        discount: (b,), discount^n, or 0 where the game ended before.
        weight: (b,), at most 1; larger for what is drawn rarely.
        row, game: (b,), where they stand.
    """

    observation: Array
    action: Array
    reward: Array
    next_observation: Array
    discount: Array
    weight: Array
    row: Array
    game: Array


def create_buffer(num_rows: int, num_games: int) -> ReplayBuffer:
    """Room for so many rows of so many games."""
    flags = jnp.zeros((num_rows, num_games), bool)
    return ReplayBuffer(
        frames=jnp.zeros((num_rows, num_games, FRAME_SIZE, FRAME_SIZE), jnp.uint8),
        action=jnp.zeros((num_rows, num_games), jnp.int32),
        reward=jnp.zeros((num_rows, num_games)),
        is_first=flags,
        is_last=flags.copy(),
        is_reset=flags.copy(),
        priority=jnp.zeros((num_rows, num_games)),
        max_priority=jnp.ones(()),
        num_added=jnp.zeros((), jnp.int32),
    )


def append_row(replay: ReplayBuffer, row: ReplayRow, lookahead: int) -> ReplayBuffer:
    """With one more row. The step `ahead` rows back can be drawn from here on.

    The oldest rows after it lose part of their stack of frames, and cannot be drawn any more.
    """
    length = len(replay.reward)
    place = replay.num_added % length
    ready = (replay.num_added - lookahead) % length
    lost = (place + jnp.arange(NUM_FRAMES)) % length
    priority = replay.priority.at[lost].set(0.0)
    known = (replay.num_added >= lookahead) & ~replay.is_reset[ready]
    return replay._replace(
        frames=replay.frames.at[place].set(row.frames),
        action=replay.action.at[place].set(row.action),
        reward=replay.reward.at[place].set(row.reward),
        is_first=replay.is_first.at[place].set(row.is_first),
        is_last=replay.is_last.at[place].set(row.is_last),
        is_reset=replay.is_reset.at[place].set(row.is_reset),
        priority=priority.at[ready].set(jnp.where(known, replay.max_priority, 0.0)),
        num_added=replay.num_added + 1,
    )


def sample_batch(
    replay: ReplayBuffer, key: Array, batch_size: int, lookahead: int, discount: float
) -> ReplayBatch:
    """`size` steps, each as likely as its priority: one from each of as many equal parts."""
    rows = replay.priority.sum(axis=1)
    upto = jnp.cumsum(rows)
    spots = (
        (jnp.arange(batch_size) + jax.random.uniform(key, (batch_size,))) / batch_size * upto[-1]
    )
    row = jnp.minimum((upto <= spots[:, None]).sum(axis=1), len(rows) - 1)
    within = jnp.cumsum(replay.priority[row], axis=1)
    rest = spots - (upto[row] - rows[row])
    game = jnp.minimum((within <= rest[:, None]).sum(axis=1), within.shape[1] - 1)
    chance = replay.priority[row, game]
    # Rounding may draw a step of priority 0, whose return is not known.
    weight = jnp.where(chance > 0, 1 / jnp.sqrt(jnp.where(chance > 0, chance, 1.0)), 0.0)
    reward, alive = jnp.zeros(batch_size), jnp.ones(batch_size)
    for each in range(lookahead):
        at = (row + each) % len(rows)
        reward += discount**each * alive * replay.reward[at, game]
        alive *= 1.0 - replay.is_last[at, game]
    return ReplayBatch(
        observation=_stack_frames(replay, row, game),
        action=replay.action[row, game],
        reward=reward,
        next_observation=_stack_frames(replay, (row + lookahead) % len(rows), game),
        discount=discount**lookahead * alive,
        weight=weight / weight.max(),
        row=row,
        game=game,
    )


def update_priorities(replay: ReplayBuffer, batch: ReplayBatch, priority: Array) -> ReplayBuffer:
    """With the priorities (b,) of what was drawn; a step that cannot be drawn stays so."""
    before = replay.priority[batch.row, batch.game]
    after = jnp.where(before > 0, priority, 0.0)
    return replay._replace(
        priority=replay.priority.at[batch.row, batch.game].set(after),
        max_priority=jnp.maximum(replay.max_priority, after.max()),
    )


def _stack_frames(replay: ReplayBuffer, row: Array, game: Array) -> Array:
    """The stacks (b, 4, 84, 84) that were seen; frames from before the game began are black."""
    seen = jnp.ones(row.shape, bool)
    frames = []
    for back in range(NUM_FRAMES):
        at = (row - back) % len(replay.reward)
        frames.append(jnp.where(seen[:, None, None], replay.frames[at, game], 0))
        seen &= ~replay.is_first[at, game]
    return jnp.stack(frames[::-1], axis=1)
