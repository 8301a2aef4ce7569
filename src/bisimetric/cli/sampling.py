"""The words of `bisimetric sampled`: what pairs are drawn from, which ones, and for how long."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import OmitArgPrefixes, Positional, arg

from bisimetric.cli.arguments import Pictures, Source, check_outputs, count, keep_inputs
from bisimetric.errors import InputError, near_names

if TYPE_CHECKING:
    from bisimetric.mdp import MDP
    from bisimetric.transitions import Transitions

SAMPLERS = ("uniform", "trajectories", "all-actions", "prioritised")
"""Their names: `sampled.samplers` would bring NumPy into `--help`."""


@dataclasses.dataclass(frozen=True)
class Experience(Source):
    """What pairs of transitions are drawn from."""

    world: Annotated[Positional[str], arg(metavar="WORLD_OR_DATA")]
    """a deterministic world, as `bisimetric worlds` lists them, or a .npz file of transitions"""
    discount: Annotated[
        float | None,
        arg(metavar="G", help_behavior_hint="(default: the world's own; of data, 0.99)"),
    ] = None
    """how much the next step counts, at least 0 and below 1"""

    def opened(self) -> MDP | Transitions:
        """The world, or the data without its observations."""
        from bisimetric.transitions import Transitions
        from bisimetric.transitions.files import holds_transitions

        if not holds_transitions(self.world):
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
class Sampling:
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
    key: Annotated[int, arg(metavar="K")] = 0
    """of the random numbers; the same key gives the same table"""
    checkpoint: Annotated[Path | None, arg(metavar="RUN.npz", help_behavior_hint="")] = None
    """keep the run here, each minute and at the end, also after Ctrl-C"""
    resume: Annotated[Path | None, arg(metavar="RUN.npz", help_behavior_hint="")] = None
    """go on from such a file"""

    def arguments(self) -> dict[str, Any]:
        """What `sampled.bisimulation` and `sampled.on_policy` are called with."""
        if self.sampler not in SAMPLERS:
            raise InputError(
                f"--sampler {self.sampler}: there is no such sampler"
                f"{near_names(self.sampler, SAMPLERS) or '.'} Use one of {', '.join(SAMPLERS)}."
            )
        from bisimetric.sampled import samplers

        chosen = next(each for name, each in samplers.SAMPLERS.items() if name == self.sampler)
        return {
            "steps": None if self.steps is None else count("--steps", self.steps),
            "seconds": self.seconds,
            "tol": self.tol,
            "sampler": chosen(),
            "key": self.key,
            "checkpoint": self.checkpoint,
            "resume": self.resume,
        }


Experienced = OmitArgPrefixes[Experience]
Sampled = OmitArgPrefixes[Sampling]


def opened(
    source: Experience, sampling: Sampling, output: Path | None, pictures: Pictures
) -> MDP | Transitions:
    """The source, once every place to save to and every state is known to be good."""
    check_outputs(output, sampling.checkpoint, *pictures.paths)
    keep_inputs((output, *pictures.paths), source.world, sampling.resume)
    keep_inputs([sampling.checkpoint], source.world)
    pictures.check()
    found = source.opened()
    pictures.check_world(states_of(found))
    return found


def states_of(source: MDP | Transitions) -> MDP:
    """An MDP with the states of the table that a source leads to, whatever its actions."""
    from bisimetric.mdp import MDP

    if isinstance(source, MDP):
        return source
    import numpy as np

    same = dataclasses.replace(
        source, actions=np.zeros(len(source), np.int64), num_actions=1, action_names=None
    )
    return same.to_mdp(unseen="lacking")
