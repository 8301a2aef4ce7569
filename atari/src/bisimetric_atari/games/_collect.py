"""Collect transitions of an agent that plays many games in parallel, as its own features."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bisimetric._memory import require_memory
from bisimetric._progress import show_progress
from bisimetric.errors import InputError, require_integer
from bisimetric.mdp._validation import freeze
from bisimetric.transitions import Transitions
from bisimetric.transitions._validation import collect_metadata
from bisimetric_atari.games.agent import (
    EPSILON,
    Agent,
    EpsilonGreedyPolicy,
    get_observes,
    validate_agent,
)
from bisimetric_atari.games.environments import (
    FRAME_SKIP,
    MAX_EPISODE_STEPS,
    MAX_NOOPS,
    REPEAT_ACTION_PROBABILITY,
    AtariGames,
    Game,
    VectorStep,
    find_game,
    import_game_package,
    validate_probability,
)

STEPS = 600_000
NUM_ENVS = 32
"""Parallel games: few enough that the first 10,000 of `STEPS` steps are of one game, as in the
paper. 64 are faster on 16 cores."""

FEATURE_DTYPE = np.float16
MAX_FEATURE = float(np.finfo(FEATURE_DTYPE).max)
GameIndices = NDArray[np.int64]
Mask = NDArray[np.bool_]
PROGRESS_PERIOD = 64
"""Rounds between two updates of the progress bar."""


def collect(
    game: str | Game,
    agent: Agent,
    *,
    steps: int = STEPS,
    num_envs: int = NUM_ENVS,
    epsilon: float = EPSILON,
    max_noops: int = MAX_NOOPS,
    seed: int = 0,
    clip_rewards: bool = True,
    num_threads: int = 0,
    max_episode_steps: int = MAX_EPISODE_STEPS,
    frame_skip: int = FRAME_SKIP,
    repeat_action_probability: float = REPEAT_ACTION_PROBABILITY,
) -> Transitions:
    """Collect transitions whose observations are the agent's features.

    Features are computed once per frame and stored as float16; frames are not stored. Rows are
    ordered by game, so that the steps of an episode are consecutive. A step is terminated where
    the game is over, and truncated after `max_episode_steps` and at the last row of each game.

    Without sticky actions games are deterministic: episodes differ by their no-op starts and by
    random actions. The metadata record all options and whether the agent sampled. The same seed
    and `num_envs` give the same transitions with any number of threads.

    Args:
        game: the game or its name.
        agent: the agent that plays it.
        steps: environment steps in all.
        num_envs: number of parallel games.
        epsilon: probability of a uniformly random action.
        max_noops: no-op frames at the start of an episode, fewer than this.
        seed: of the starts and the random actions.
        clip_rewards: whether to clip rewards to [-1, 1].
        num_threads: threads of ALE; 0 for one per core.
        max_episode_steps: steps after which an episode is truncated.
        frame_skip: emulator frames per step.
        repeat_action_probability: sticky actions: the probability, per frame, that the emulator
            repeats the last action.

    Returns:
        The transitions, observations (steps, k) float16.

    Raises:
        InputError: if the agent does not fit the game, an argument is out of range, or a feature
            exceeds the range of float16.
        InsufficientMemory: if the transitions do not fit into memory.

    >>> from bisimetric_atari.games import IdleAgent
    >>> collect("Pong", IdleAgent("Pong"), steps=40, num_envs=4)
    Transitions(40 steps, 4 episodes, observations (12,) float16, 6 actions)
    """
    game = find_game(game)
    validate_agent(agent, game)
    steps = require_integer(game.name, "steps", steps, 1)
    num_envs = min(require_integer(game.name, "num_envs", num_envs, 1), steps)
    validate_probability(game.name, "epsilon", epsilon)
    feature_bytes = np.dtype(FEATURE_DTYPE).itemsize * agent.num_features
    require_memory(
        f"{game.name}: {agent.num_features} features of {steps:,} steps need",
        steps * (2 * feature_bytes + 18),
        "take fewer steps",
    )
    buffer = _TransitionBuffer(steps, num_envs, agent, clip_rewards)
    # While the emulators of one half run, the agent evaluates the other half.
    halves = [range(num_envs // 2), range(num_envs // 2, num_envs)]
    groups = [
        _GameGroup(
            AtariGames(
                game,
                len(indices),
                seed=seed,
                max_noops=max_noops,
                num_threads=num_threads,
                max_episode_steps=max_episode_steps,
                first_index=indices.start,
                frame_skip=frame_skip,
                repeat_action_probability=repeat_action_probability,
                observes=get_observes(agent),
            ),
            EpsilonGreedyPolicy(
                agent, game, len(indices), epsilon=epsilon, seed=seed, first_index=indices.start
            ),
            buffer,
            indices,
        )
        for indices in halves
        if indices
    ]
    with show_progress(steps, f"steps in {game.name}") as progress:
        rounds = 0
        while buffer.num_stored < steps:
            for group in groups:
                group.advance()
            rounds += 1
            if rounds % PROGRESS_PERIOD == 0:
                progress.set_position(buffer.num_stored, f"{buffer.num_stored:,} steps")
    details = {
        "game": game.name,
        "agent": agent.name,
        "steps": steps,
        "num_envs": num_envs,
        "epsilon": epsilon,
        "max_noops": max_noops,
        "seed": seed,
        "clip_rewards": clip_rewards,
        "max_episode_steps": max_episode_steps,
        "frame_skip": frame_skip,
        "repeat_action_probability": repeat_action_probability,
        "observes": get_observes(agent),
        "sampled_actions": any(group.policy.has_sampled for group in groups),
        "ale_py": import_game_package("ale_py").__version__,
    }
    return Transitions(
        **buffer.get_columns(),
        num_actions=len(game.actions),
        action_names=game.actions,
        metadata=collect_metadata(details),
    )


class _TransitionBuffer:
    """Rows of all games; those of game i are `start[i]` to `stop[i]`, `row[i]` is the next one."""

    def __init__(self, steps: int, num_envs: int, agent: Agent, clip_rewards: bool) -> None:
        self._agent, self._clip_rewards = agent.name, clip_rewards
        shape = (steps, agent.num_features)
        self.observations = np.empty(shape, FEATURE_DTYPE)
        self.next_observations = np.empty(shape, FEATURE_DTYPE)
        self.actions, self.rewards = np.empty(steps, np.int64), np.empty(steps)
        self.terminated, self.truncated = np.empty(steps, np.bool_), np.empty(steps, np.bool_)
        edges = np.arange(num_envs + 1) * steps // num_envs
        self.start, self.stop = edges[:-1], edges[1:]
        self.row = self.start.copy()

    @property
    def num_stored(self) -> int:
        return int((self.row - self.start).sum())

    def to_half_precision(self, features: NDArray[np.float32]) -> NDArray[np.float16]:
        """Convert features to float16; raise InputError beyond its range."""
        largest = float(np.abs(features).max())
        if largest > MAX_FEATURE:
            raise InputError(
                f"{self._agent}: a feature is {largest:.3g} and the largest that float16 holds is "
                f"{MAX_FEATURE:.0f}; scale its features down."
            )
        return features.astype(FEATURE_DTYPE)

    def store_outcomes(
        self, indices: GameIndices, mask: Mask, step: VectorStep, features: NDArray[np.float16]
    ) -> None:
        """Complete the pending rows of the masked games with the outcome of their step."""
        rows = self.row[indices[mask]]
        rewards, terminated = step.rewards[mask], step.terminated[mask]
        self.rewards[rows] = np.clip(rewards, -1.0, 1.0) if self._clip_rewards else rewards
        self.terminated[rows] = terminated
        # The row after the last one of a game belongs to another game.
        last = (rows + 1 == self.stop[indices[mask]]) & ~terminated
        self.truncated[rows] = step.truncated[mask] | last
        self.next_observations[rows] = features[mask]
        self.row[indices[mask]] += 1

    def store_actions(
        self,
        indices: GameIndices,
        mask: Mask,
        actions: NDArray[np.int64],
        features: NDArray[np.float16],
    ) -> None:
        """Begin a row in the masked games with the observation and the action."""
        rows = self.row[indices[mask]]
        self.actions[rows] = actions[mask]
        self.observations[rows] = features[mask]

    def get_columns(self) -> dict[str, Any]:
        names = ("observations", "actions", "rewards", "next_observations")
        return {name: freeze(getattr(self, name)) for name in (*names, "terminated", "truncated")}


class _GameGroup:
    """Some of the games, their policy, and the mask of games with a pending row."""

    def __init__(
        self,
        games: AtariGames,
        policy: EpsilonGreedyPolicy,
        buffer: _TransitionBuffer,
        indices: range,
    ) -> None:
        self._games, self.policy, self._buffer = games, policy, buffer
        self._indices = np.array(indices)
        self._active = np.zeros(games.num_envs, np.bool_)
        self._pending_step: VectorStep | None = games.reset()
        self._finished = False

    def advance(self) -> None:
        """Receive a step, store its outcome, and send the next actions."""
        if self._finished:
            return
        step = self._games.receive() if self._pending_step is None else self._pending_step
        self._pending_step = None
        output, actions = self.policy.act(step.observations, step.is_first)
        features = self._buffer.to_half_precision(output.features)
        self._buffer.store_outcomes(self._indices, self._active, step, features)
        incomplete = self._buffer.row[self._indices] < self._buffer.stop[self._indices]
        self._active = incomplete & ~(step.terminated | step.truncated)
        self._buffer.store_actions(self._indices, self._active, actions, features)
        self._finished = not incomplete.any()
        if not self._finished:
            self._games.send(actions)
