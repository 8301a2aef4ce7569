"""The frozen protocol of the benchmark of representation losses.

Constants of training and tuning, and the settings that tuning selected. The protocol was fixed
before the held-out MDPs were run; results record it, and results of another protocol are not mixed
with them.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

DISCOUNT = 0.9
POLICIES = ("greedy", "uniform")
"""An optimal deterministic policy, and the uniform random one."""


class Noise(NamedTuple):
    """A distractor e' = correlation * e + sqrt(1 - correlation^2) * xi, xi standard normal.

    Attributes:
        scale: factor of the distractor in the observation.
        correlation: of two consecutive steps.
    """

    scale: float
    correlation: float


NOISES = {"none": Noise(0.0, 0.0), "iid": Noise(0.5, 0.0), "slow": Noise(0.5, 0.95)}


class Setting(NamedTuple):
    """Hyperparameters that are tuned, the same grid for every loss.

    Attributes:
        learning_rate: of Adam, at the start of its cosine decay to 0.
        reward_scale: factor of rewards in training, by which distances are divided afterwards. With
            0.1, which is 1 - discount, distances are at most 1; with 1, at most 10.
    """

    learning_rate: float
    reward_scale: float


SETTINGS = tuple(Setting(rate, scale) for rate in (3e-4, 1e-3, 3e-3) for scale in (0.1, 1.0))


@dataclasses.dataclass(frozen=True)
class Protocol:
    """The sizes of a run.

    Attributes:
        updates: gradient updates per network.
        batch_size: transitions per update; all their pairs are compared.
        embedding_size: coordinates of an embedding.
        hidden_size: width of the hidden layers.
        lookahead: steps of n-step targets.
        target_rate: the target network moves by this fraction towards the network per update.
        num_renderings: renderings of each state when distances are measured.
        tuning_seeds: seeds per setting in tuning.
        num_seeds: seeds of the final runs.

    >>> Protocol().updates
    4000
    """

    updates: int = 4_000
    batch_size: int = 32
    embedding_size: int = 64
    hidden_size: int = 128
    lookahead: int = 3
    target_rate: float = 0.02
    num_renderings: int = 8
    tuning_seeds: int = 3
    num_seeds: int = 10

    def describe(self) -> dict[str, Any]:
        """Return all constants, for the results file."""
        return dataclasses.asdict(self) | {
            "discount": DISCOUNT,
            "policies": list(POLICIES),
            "noises": {name: list(noise) for name, noise in NOISES.items()},
            "settings": [list(setting) for setting in SETTINGS],
        }


TUNING_SEED = 1_000
"""Tuning takes seeds from here, final runs from 0."""

QUICK = Protocol(updates=400, num_seeds=2)
"""Minutes on two cores, with the selected settings."""


SELECTED: dict[str, Setting] = {
    "mico": Setting(0.003, 1.0),
    "reduced-mico": Setting(0.003, 1.0),
    "dbc": Setting(0.001, 0.1),
    "normalised-dbc": Setting(0.003, 1.0),
    "simsr": Setting(0.003, 0.1),
    "rap": Setting(0.0003, 1.0),
    "deepmdp": Setting(0.0003, 1.0),
    "pair-q": Setting(0.003, 1.0),
    "on-policy": Setting(0.003, 0.1),
}
"""The setting of each loss that tuning selected."""
DEFAULT_SETTING = SETTINGS[2]
"""The setting of controls and of losses that were not tuned."""


class Run(NamedTuple):
    """One network: what it is trained on, and how."""

    policy: str
    noise: str
    setting: Setting
    seed: int


def list_tuning_runs(protocol: Protocol) -> list[Run]:
    """List the runs of one loss on one tuning MDP: all settings, policies and noises.

    >>> len(list_tuning_runs(Protocol()))
    108
    """
    seeds = range(TUNING_SEED, TUNING_SEED + protocol.tuning_seeds)
    return [
        Run(policy, noise, setting, seed)
        for policy in POLICIES
        for noise in NOISES
        for setting in SETTINGS
        for seed in seeds
    ]


def list_final_runs(protocol: Protocol, setting: Setting) -> list[Run]:
    """List the final runs of one loss on one MDP, with the selected setting.

    >>> len(list_final_runs(Protocol(), SETTINGS[0]))
    60
    """
    return [
        Run(policy, noise, setting, seed)
        for policy in POLICIES
        for noise in NOISES
        for seed in range(protocol.num_seeds)
    ]
