"""One environment or several, driven alike: reset, step, reset again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from bisimetric.errors import InputError
from bisimetric.worlds.environments import imported, is_minigrid
from bisimetric.worlds.minigrid_rooms import stop_the_clock

NEXT_STEP, SAME_STEP, DISABLED = "NextStep", "SameStep", "Disabled"
"""How a vector environment resets: in the step after an end, in the same step, or when told to."""


class Move(NamedTuple):
    """What a step led to."""

    observation: Any
    reward: float
    terminated: bool
    truncated: bool


class Fleet(Protocol):
    """Environments side by side.

    Attributes:
        now: what each observes.
        resting: whether the next step of each is a reset, and no step.
        environments: what `state_of` may look at, for each.
        longest: after how many steps an episode is cut, or None.
    """

    now: list[Any]
    resting: list[bool]
    environments: list[Any]
    longest: int | None

    def start(self) -> None:
        """Resets all."""

    def ask(self, policy: Callable[[Any], Any]) -> Sequence[Any]:
        """The actions of a policy, one for each."""

    def step(self, actions: list[Any]) -> list[Move | None]:
        """Takes the actions; None for those which were resting."""

    def restart(self, over: list[bool]) -> None:
        """Begins the next episodes of those whose episode is over."""


class Single:
    """One environment. MiniGrid's clock is held, and its own limit of steps is `longest`."""

    def __init__(
        self, environment: Any, *, seed: int, same_start: bool, longest: int | None
    ) -> None:
        self._environment, self._seed, self._same_start = environment, seed, same_start
        self._room = environment.unwrapped if is_minigrid(environment) else None
        self.environments: list[Any] = [environment]
        self.now: list[Any] = []
        self.resting = [False]
        self.longest = longest

    def start(self) -> None:
        observation, _ = self._environment.reset(seed=self._seed)
        self.now = [observation]
        if self._room is not None and self.longest is None:
            self.longest = int(self._room.max_steps)

    def ask(self, policy: Callable[[Any], Any]) -> Sequence[Any]:
        return [policy(self.now[0])]

    def step(self, actions: list[Any]) -> list[Move | None]:
        if self._room is not None:
            stop_the_clock(self._room)
        observation, reward, terminated, truncated, _ = self._environment.step(actions[0])
        self.now = [observation]
        return [Move(observation, float(reward), bool(terminated), bool(truncated))]

    def restart(self, over: list[bool]) -> None:
        if not over[0]:
            return
        bare = self._environment.unwrapped
        random = bare.np_random if self._same_start else None
        observation, _ = self._environment.reset(seed=self._seed if self._same_start else None)
        if random is not None:
            # The start is the same again; what chance does after it is not.
            bare.np_random = random
        self.now = [observation]


class Vector:
    """A vector environment of Gymnasium, in any of its ways to reset."""

    def __init__(self, environment: Any, where: str, *, seed: int) -> None:
        mode = environment.metadata.get("autoreset_mode")
        self._mode = getattr(mode, "value", mode) or NEXT_STEP
        if self._mode not in (NEXT_STEP, SAME_STEP, DISABLED):
            raise InputError(
                f"{where}: its autoreset_mode is {mode!r} and must be {NEXT_STEP}, {SAME_STEP} or "
                f"{DISABLED}."
            )
        self._environment, self._where, self._seed = environment, where, seed
        self._of = imported("gymnasium.vector.utils", where)
        self._count = environment.num_envs
        # Theirs may be in other processes, and a step ahead.
        self.environments: list[Any] = [None] * self._count
        self.longest: int | None = None
        self.now: list[Any] = []
        self.resting = [False] * self._count

    def start(self) -> None:
        self._observe(self._environment.reset(seed=self._seed)[0])

    def ask(self, policy: Callable[[Any], Any]) -> Sequence[Any]:
        given = policy(self._batch)
        try:
            actions = list(self._of.iterate(self._environment.action_space, given))
        except (TypeError, ValueError, KeyError, IndexError):
            actions = []
        if len(actions) != self._count:
            raise InputError(
                f"{self._where}: the policy returned {given!r}, which is no batch of "
                f"{self._count} actions, {self._environment.action_space}."
            )
        return actions

    def step(self, actions: list[Any]) -> list[Move | None]:
        space = self._environment.single_action_space
        empty = self._of.create_empty_array(space, self._count)
        together = self._of.concatenate(space, actions, empty)
        batch, rewards, ends, cuts, infos = self._environment.step(together)
        self._observe(batch)
        moves: list[Move | None] = []
        for place, (reward, ended, cut) in enumerate(zip(rewards, ends, cuts, strict=True)):
            observation = self.now[place]
            if self._mode == SAME_STEP and (ended or cut):
                observation = self._final(infos, place)
            move = Move(observation, float(reward), bool(ended), bool(cut))
            moves.append(None if self.resting[place] else move)
        self.resting = [False] * self._count
        return moves

    def restart(self, over: list[bool]) -> None:
        if self._mode == NEXT_STEP:
            self.resting = over
        elif self._mode == DISABLED and any(over):
            options = {"reset_mask": np.array(over)}
            self._observe(self._environment.reset(options=options)[0])

    def _observe(self, batch: Any) -> None:
        self._batch = batch
        self.now = list(self._of.iterate(self._environment.observation_space, batch))

    def _final(self, infos: dict[str, Any], place: int) -> Any:
        try:
            return infos["final_obs"][place]
        except (KeyError, IndexError):
            raise InputError(
                f"{self._where}: resets in the same step, and its infos hold no final_obs."
            ) from None
