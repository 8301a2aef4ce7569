"""How Rainbow learns: Dopamine's settings, for many games at once."""

from __future__ import annotations

import dataclasses

from bisimetric.errors import InputError, require_integer


@dataclasses.dataclass(frozen=True)
class RainbowConfig:
    """Steps are those of the agent, four frames each, of all games together.

    Dopamine takes a batch of 32 every 4 steps of one game: each step is learned from 8 times. So it
    is here, with larger batches: `count * reuse / batch` of them after each step of all games.

    Attributes:
        count: games at once.
        batch: steps that an update learns from.
        reuse: how often a step is learned from, in the mean.
        learning_rate, epsilon: of Adam.
        ahead: steps of a return before the network's word is taken.
        capacity: steps that are kept.
        start: steps before the first update.
        period: steps between two updates of the target network.
        explore, settle: the share of random actions falls from 1 to `explore` in `settle` steps.
    """

    num_games: int = 128
    batch: int = 512
    samples_per_insert: int = 16
    learning_rate: float = 2e-4
    adam_epsilon: float = 2e-5
    discount: float = 0.99
    lookahead: int = 3
    capacity: int = 1_000_000
    min_replay_size: int = 20_000
    target_update_period: int = 8_000
    final_epsilon: float = 0.01
    epsilon_decay_steps: int = 250_000

    def __post_init__(self) -> None:
        for name in ("count", "batch", "reuse", "ahead", "capacity", "start", "period", "settle"):
            require_integer("Settings", name, getattr(self, name), 1)
        for name in ("learning_rate", "epsilon", "discount", "explore"):
            if not 0 < getattr(self, name) < 1:
                raise InputError(
                    f"Settings: {name} is {getattr(self, name)!r} and must be between 0 and 1."
                )
        if self.capacity < self.min_replay_size:
            raise InputError(
                f"Settings: capacity is {self.capacity:,} and start {self.min_replay_size:,}; keep at least "
                "what learning starts with."
            )
        if (self.num_games * self.samples_per_insert) % self.batch:
            raise InputError(
                f"Settings: {self.num_games} games, each step learned from {self.samples_per_insert} times, are no "
                f"whole number of batches of {self.batch}; choose a batch that divides "
                f"{self.num_games * self.samples_per_insert}."
            )

    @property
    def updates_per_step(self) -> int:
        """Batches after each step of all games."""
        return self.num_games * self.samples_per_insert // self.batch

    @property
    def num_rows(self) -> int:
        """The rows of the replay."""
        return -(-self.capacity // self.num_games)

    def compute_epsilon(self, step: int) -> float:
        """The share of random actions after so many steps; `settle` counts from `start`."""
        done = min(max(step - self.min_replay_size, 0) / self.epsilon_decay_steps, 1.0)
        return 1.0 + done * (self.final_epsilon - 1.0)
