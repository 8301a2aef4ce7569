"""How Rainbow learns: Dopamine's settings, for many games at once."""

from __future__ import annotations

import dataclasses

from bisimetric.errors import InputError, whole


@dataclasses.dataclass(frozen=True)
class Settings:
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

    count: int = 128
    batch: int = 512
    reuse: int = 16
    learning_rate: float = 2e-4
    epsilon: float = 2e-5
    discount: float = 0.99
    ahead: int = 3
    capacity: int = 1_000_000
    start: int = 20_000
    period: int = 8_000
    explore: float = 0.01
    settle: int = 250_000

    def __post_init__(self) -> None:
        for name in ("count", "batch", "reuse", "ahead", "capacity", "start", "period", "settle"):
            whole("Settings", name, getattr(self, name), 1)
        for name in ("learning_rate", "epsilon", "discount", "explore"):
            if not 0 < getattr(self, name) < 1:
                raise InputError(
                    f"Settings: {name} is {getattr(self, name)!r} and must be between 0 and 1."
                )
        if self.capacity < self.start:
            raise InputError(
                f"Settings: capacity is {self.capacity:,} and start {self.start:,}; keep at least "
                "what learning starts with."
            )
        if (self.count * self.reuse) % self.batch:
            raise InputError(
                f"Settings: {self.count} games, each step learned from {self.reuse} times, are no "
                f"whole number of batches of {self.batch}; choose a batch that divides "
                f"{self.count * self.reuse}."
            )

    @property
    def updates(self) -> int:
        """Batches after each step of all games."""
        return self.count * self.reuse // self.batch

    @property
    def length(self) -> int:
        """The rows of the replay."""
        return -(-self.capacity // self.count)

    def random_share(self, step: int) -> float:
        """The share of random actions after so many steps; `settle` counts from `start`."""
        done = min(max(step - self.start, 0) / self.settle, 1.0)
        return 1.0 + done * (self.explore - 1.0)
