"""Steps of one environment or several, one by one, until enough were taken."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, NamedTuple

from bisimetric.datasets.actions import ActionEncoder, ActionSelector
from bisimetric.datasets.fleets import EnvironmentBatch, StepResult
from bisimetric.datasets.observations import EncodedObservation, ObservationEncoder


class EnvironmentStep(NamedTuple):
    """One step of the environment at one place."""

    env_index: int
    observation: EncodedObservation
    action: Any
    reward: float
    next_observation: EncodedObservation
    terminated: bool
    truncated: bool


@dataclasses.dataclass(frozen=True)
class RolloutLimits:
    """How many steps, and how many episodes, are enough; None means any number."""

    steps: int | None
    episodes: int | None

    def split(self, env_index: int, num_envs: int) -> RolloutLimits:
        """What falls to one of several places.

        >>> [Limits(10, None).share(place, 4).steps for place in range(4)]
        [3, 3, 2, 2]
        """

        def part(whole: int | None) -> int | None:
            return whole if whole is None else whole // num_envs + (env_index < whole % num_envs)

        return RolloutLimits(part(self.steps), part(self.episodes))

    def is_reached(self, steps: int, episodes: int) -> bool:
        return steps == self.steps or episodes == self.episodes


class EnvironmentProgress:
    """Where one environment stands in its share of the walk."""

    def __init__(self, limits: RolloutLimits) -> None:
        self._limits = limits
        self._num_steps = self._num_episodes = self._episode_length = 0
        self.active = not limits.is_reached(0, 0)

    def record_step(self, result: StepResult, max_episode_steps: int | None) -> bool:
        """Counts a step; whether its episode is over."""
        self._episode_length += 1
        over = result.terminated or result.truncated or self._episode_length == max_episode_steps
        self._num_steps += 1
        self._num_episodes += over
        self._episode_length *= not over
        self.active = self.active and not self._limits.is_reached(
            self._num_steps, self._num_episodes
        )
        return over


def iterate_steps(
    environments: EnvironmentBatch,
    observation_encoder: ObservationEncoder,
    action_encoder: ActionEncoder,
    selector: ActionSelector,
    limits: RolloutLimits,
) -> Iterator[EnvironmentStep]:
    """The steps of all environments, in the order of time.

    Each environment takes its share of the limits, so that long episodes count as much as short
    ones. Its last step is truncated, unless the episode ended there.
    """
    environments.reset()
    count = len(environments.observations)
    lanes = [EnvironmentProgress(limits.split(place, count)) for place in range(count)]

    def encode(place: int, observation: Any) -> EncodedObservation:
        return observation_encoder.encode(environments.environments[place], observation)

    seen = [encode(place, environments.observations[place]) for place in range(count)]
    while any(lane.active for lane in lanes):
        acting = [
            lane.active and not environments.resetting[place] for place, lane in enumerate(lanes)
        ]
        chosen = selector.select_actions(seen, acting, environments.call_policy)
        begun = [False] * count
        over = [False] * count
        for place, move in enumerate(environments.step(chosen)):
            lane = lanes[place]
            if move is None:
                begun[place] = True
                continue
            over[place] = lane.record_step(move, environments.max_episode_steps)
            if acting[place]:
                before, seen[place] = seen[place], encode(place, move.observation)
                yield EnvironmentStep(
                    place,
                    before,
                    action_encoder.encode(chosen[place]),
                    move.reward,
                    seen[place],
                    move.terminated,
                    (over[place] or not lane.active) and not move.terminated,
                )
        if not any(lane.active for lane in lanes):
            return
        environments.reset_finished(over)
        for place, lane in enumerate(lanes):
            fresh = begun[place] or (over[place] and not environments.resetting[place])
            if fresh and lane.active:
                seen[place] = encode(place, environments.observations[place])
