"""The words of `bisimetric sampled`: what pairs are drawn from, which ones, and for how long."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import OmitArgPrefixes, Positional, arg

from bisimetric.cli.options import (
    FigureOptions,
    WorldOptions,
    parse_count,
    reject_overwriting,
    validate_outputs,
)
from bisimetric.errors import InputError, suggest_names

if TYPE_CHECKING:
    from bisimetric.mdp import MDP
    from bisimetric.transitions import Transitions

SAMPLERS = ("uniform", "trajectories", "all-actions", "prioritised")
"""Their names: `sampled.samplers` would bring NumPy into `--help`."""


@dataclasses.dataclass(frozen=True)
class DataOptions(WorldOptions):
    """What pairs of transitions are drawn from."""

    world: Annotated[Positional[str], arg(metavar="WORLD_OR_DATA")]
    """a deterministic world, as `bisimetric worlds` lists them, or a .npz file of transitions"""
    discount: Annotated[
        float | None,
        arg(metavar="G", help_behavior_hint="(default: the world's own; of data, 0.99)"),
    ] = None
    """how much the next step counts, at least 0 and below 1"""

    def read(self) -> MDP | Transitions:
        """The world, or the data without its observations."""
        from bisimetric.transitions import Transitions
        from bisimetric.transitions.files import is_transitions_file

        if not is_transitions_file(self.world):
            return self.load()
        if self.options:
            raise InputError(f"{self.world} holds transitions, which --set cannot change.")
        data = Transitions.load(self.world, observations=False)
        if data.states is None:
            raise InputError(
                f"{self.world} has observations {data.observations.shape[1:]} and no ids of "
                "states, which a table of distances needs; collect it in Python with "
                "datasets.rollout(..., state_of=...)."
            )
        return data


@dataclasses.dataclass(frozen=True)
class SamplingOptions:
    """Which pairs of transitions are drawn, and when that stops: at the first of these limits."""

    steps: Annotated[str | None, arg(metavar="N", help_behavior_hint="(default: no limit)")] = None
    """how many pairs, those before --resume included; 2000000, 2_000_000, 2e6 or 2M"""
    seconds: Annotated[float | None, arg(metavar="T", help_behavior_hint="(default: no limit)")] = (
        None
    )
    """how long"""
    tol: Annotated[
        float | None, arg(metavar="T", help_behavior_hint="(default: 1e-3 where no limit is given)")
    ] = None
    """until no known transition could change any distance by more"""
    sampler: Annotated[str, arg(metavar=f"{{{','.join(SAMPLERS)}}}")] = "uniform"
    """how pairs are chosen; all lead to the same table, prioritised in the fewest steps"""
    seed: Annotated[int, arg(metavar="K")] = 0
    """of the random numbers; the same key gives the same table"""
    checkpoint: Annotated[Path | None, arg(metavar="RUN.npz", help_behavior_hint="")] = None
    """keep the run here, each minute and at the end, also after Ctrl-C"""
    resume: Annotated[Path | None, arg(metavar="RUN.npz", help_behavior_hint="")] = None
    """go on from such a file"""

    def to_arguments(self) -> dict[str, Any]:
        """What `sampled.bisimulation` and `sampled.on_policy` are called with."""
        if self.sampler not in SAMPLERS:
            raise InputError(
                f"--sampler {self.sampler}: there is no such sampler"
                f"{suggest_names(self.sampler, SAMPLERS) or '.'} Use one of {', '.join(SAMPLERS)}."
            )
        from bisimetric.sampled import samplers

        chosen = next(each for name, each in samplers.SAMPLERS.items() if name == self.sampler)
        return {
            "steps": None if self.steps is None else parse_count("--steps", self.steps),
            "seconds": self.seconds,
            "tol": self.tol,
            "sampler": chosen(),
            "key": self.seed,
            "checkpoint": self.checkpoint,
            "resume": self.resume,
        }


DataArg = OmitArgPrefixes[DataOptions]
SamplingArg = OmitArgPrefixes[SamplingOptions]


def open_sampled_source(
    source: DataOptions, sampling: SamplingOptions, output: Path | None, figures: FigureOptions
) -> MDP | Transitions:
    """The source, once every place to save to and every state is known to be good."""
    validate_outputs(output, sampling.checkpoint, *figures.paths)
    reject_overwriting((output, *figures.paths), source.world, sampling.resume)
    reject_overwriting([sampling.checkpoint], source.world)
    figures.validate()
    found = source.read()
    figures.validate_states(build_state_space(found))
    return found


def build_state_space(source: MDP | Transitions) -> MDP:
    """An MDP with the states of the table that a source leads to, whatever its actions."""
    from bisimetric.mdp import MDP

    if isinstance(source, MDP):
        return source
    import numpy as np

    same = dataclasses.replace(
        source, actions=np.zeros(len(source), np.int64), num_actions=1, action_names=None
    )
    return same.to_mdp(unseen="missing")
