"""Prioritised replay on the device: each frame is stored once, one row per step of all games.

A row holds one step of each game: the newest frame, action, reward, and whether the observation is
the first of an episode (`is_first`), the step the last of it (`is_last`), or no step but the reset
after it (`is_reset`). Frame stacks and n-step returns are assembled when a batch is sampled.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from bisimetric_atari.agents.rainbow.network import FRAME_SIZE, NUM_FRAMES

FRAME_BYTES = FRAME_SIZE * FRAME_SIZE
"""Bytes per frame."""


class ReplayBuffer(NamedTuple):
    """Ring buffer of rows; the priority is 0 where no n-step return is known.

    Attributes:
        frames: (num_rows, num_envs, 84, 84), the newest frame of each observation.
        action: (num_rows, num_envs).
        reward: (num_rows, num_envs).
        is_first: (num_rows, num_envs).
        is_last: (num_rows, num_envs).
        is_reset: (num_rows, num_envs).
        priority: (num_rows, num_envs).
        max_priority: the largest priority so far, that of new steps.
        num_added: rows added so far.
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
    """One step of all games; each (num_envs, ...)."""

    frames: ArrayLike
    action: ArrayLike
    reward: ArrayLike
    is_first: ArrayLike
    is_last: ArrayLike
    is_reset: ArrayLike


class ReplayBatch(NamedTuple):
    """A batch of b sampled transitions with n-step returns.

    Attributes:
        observation: (b, 4, 84, 84).
        action: (b,).
        reward: (b,), the discounted sum of n rewards.
        next_observation: (b, 4, 84, 84), n steps later.
        discount: (b,), discount^n, or 0 where the episode ended before.
        weight: (b,), importance weights 1 / sqrt(priority), divided by the largest.
        row: (b,), row in the buffer.
        game: (b,), game in the row.
    """

    observation: Array
    action: Array
    reward: Array
    next_observation: Array
    discount: Array
    weight: Array
    row: Array
    game: Array


def create_buffer(num_rows: int, num_envs: int) -> ReplayBuffer:
    """Create an empty buffer."""
    flags = jnp.zeros((num_rows, num_envs), bool)
    return ReplayBuffer(
        frames=jnp.zeros((num_rows, num_envs, FRAME_SIZE, FRAME_SIZE), jnp.uint8),
        action=jnp.zeros((num_rows, num_envs), jnp.int32),
        reward=jnp.zeros((num_rows, num_envs)),
        is_first=flags,
        is_last=flags.copy(),
        is_reset=flags.copy(),
        priority=jnp.zeros((num_rows, num_envs)),
        max_priority=jnp.ones(()),
        num_added=jnp.zeros((), jnp.int32),
    )


def append_row(replay: ReplayBuffer, row: ReplayRow, lookahead: int) -> ReplayBuffer:
    """Append a row; the step `lookahead` rows back becomes available for sampling.

    The oldest rows that would lose part of their frame stack become unavailable.
    """
    length = len(replay.reward)
    position = replay.num_added % length
    complete = (replay.num_added - lookahead) % length
    overwritten = (position + jnp.arange(NUM_FRAMES)) % length
    priority = replay.priority.at[overwritten].set(0.0)
    available = (replay.num_added >= lookahead) & ~replay.is_reset[complete]
    return replay._replace(
        frames=replay.frames.at[position].set(row.frames),
        action=replay.action.at[position].set(row.action),
        reward=replay.reward.at[position].set(row.reward),
        is_first=replay.is_first.at[position].set(row.is_first),
        is_last=replay.is_last.at[position].set(row.is_last),
        is_reset=replay.is_reset.at[position].set(row.is_reset),
        priority=priority.at[complete].set(jnp.where(available, replay.max_priority, 0.0)),
        num_added=replay.num_added + 1,
    )


def sample_batch(
    replay: ReplayBuffer, key: Array, batch_size: int, lookahead: int, discount: float
) -> ReplayBatch:
    """Sample transitions in proportion to their priorities, stratified into equal parts."""
    rows = replay.priority.sum(axis=1)
    cumulative = jnp.cumsum(rows)
    strata = jnp.arange(batch_size) + jax.random.uniform(key, (batch_size,))
    points = strata / batch_size * cumulative[-1]
    row = jnp.minimum((cumulative <= points[:, None]).sum(axis=1), len(rows) - 1)
    within = jnp.cumsum(replay.priority[row], axis=1)
    rest = points - (cumulative[row] - rows[row])
    game = jnp.minimum((within <= rest[:, None]).sum(axis=1), within.shape[1] - 1)
    priority = replay.priority[row, game]
    # Rounding may select a step of priority 0, whose return is unknown.
    weight = jnp.where(priority > 0, 1 / jnp.sqrt(jnp.where(priority > 0, priority, 1.0)), 0.0)
    reward, alive = jnp.zeros(batch_size), jnp.ones(batch_size)
    for k in range(lookahead):
        at = (row + k) % len(rows)
        reward += discount**k * alive * replay.reward[at, game]
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
    """Set the priorities (b,) of a batch; unavailable steps stay unavailable."""
    before = replay.priority[batch.row, batch.game]
    after = jnp.where(before > 0, priority, 0.0)
    return replay._replace(
        priority=replay.priority.at[batch.row, batch.game].set(after),
        max_priority=jnp.maximum(replay.max_priority, after.max()),
    )


def _stack_frames(replay: ReplayBuffer, row: Array, game: Array) -> Array:
    """Assemble observations (b, 4, 84, 84); frames before the start of an episode are 0."""
    inside = jnp.ones(row.shape, bool)
    frames = []
    for back in range(NUM_FRAMES):
        at = (row - back) % len(replay.reward)
        frames.append(jnp.where(inside[:, None, None], replay.frames[at, game], 0))
        inside &= ~replay.is_first[at, game]
    return jnp.stack(frames[::-1], axis=1)
