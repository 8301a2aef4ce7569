"""`bisimetric sampled`: distances from sampled pairs of transitions."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import arg

from bisimetric.cli.options import (
    DataOptions,
    FigureOptions,
    OutputArg,
    PolicyArg,
    SeedArg,
    parse_optional_count,
    program_name,
    resolve_data_policy,
    resolve_policy,
    validate_files,
)
from bisimetric.cli.output import add_metadata, report_checkpoint, translate_source, write_result
from bisimetric.errors import InputError, NotConverged, suggest_names

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bisimetric.distance import Distance, Kind
    from bisimetric.mdp import MDP
    from bisimetric.transitions import Transitions

SAMPLERS = ("uniform", "trajectories", "all-actions", "prioritised")
"""Names of the samplers: importing `sampled.samplers` would import NumPy for `--help`."""


@dataclasses.dataclass(frozen=True)
class SamplingOptions:
    """Which pairs of transitions are sampled, and when that stops: at the first of the limits."""

    steps: Annotated[str | None, arg(metavar="N", help_behavior_hint="(default: no limit)")] = None
    """total number of pairs, those before --resume included; 2000000, 2_000_000, 2e6 or 2M"""
    seconds: Annotated[float | None, arg(metavar="T", help_behavior_hint="(default: no limit)")] = (
        None
    )
    """time limit"""
    tol: Annotated[
        float | None, arg(metavar="T", help_behavior_hint="(default: 1e-3 where no limit is given)")
    ] = None
    """stop when no known transition changes any distance by more"""
    sampler: Annotated[str, arg(metavar=f"{{{','.join(SAMPLERS)}}}")] = "uniform"
    """how pairs are sampled; all converge to the same distances, prioritised in the fewest steps"""
    seed: SeedArg = 0
    """seed of the sampler; the same seed gives the same result"""
    checkpoint: Annotated[Path | None, arg(metavar="RUN.npz", help_behavior_hint="")] = None
    """write a checkpoint every minute, at the end and after Ctrl-C"""
    resume: Annotated[Path | None, arg(metavar="RUN.npz", help_behavior_hint="")] = None
    """continue from a checkpoint"""

    def to_arguments(self) -> dict[str, Any]:
        """Return the arguments of `sampled.bisimulation` and `sampled.on_policy`."""
        if self.sampler not in SAMPLERS:
            raise InputError(
                f"--sampler {self.sampler}: there is no such sampler"
                f"{suggest_names(self.sampler, SAMPLERS) or '.'} Use one of {', '.join(SAMPLERS)}."
            )
        from bisimetric.sampled import samplers

        sampler = next(each for name, each in samplers.SAMPLERS.items() if name == self.sampler)
        return {
            "steps": parse_optional_count("--steps", self.steps, minimum=0),
            "seconds": self.seconds,
            "tol": self.tol,
            "sampler": sampler(),
            "seed": self.seed,
            "checkpoint": self.checkpoint,
            "resume": self.resume,
        }


def bisimulation(
    source: DataOptions, sampling: SamplingOptions, figures: FigureOptions, output: OutputArg = None
) -> None:
    """d~ from samples: two transitions with the same action at a time (Castro 2020, equation 3).

    Args:
        output: save the distances: `bisimetric show`, `bisimetric explain` and NumPy read them

    Examples:
        bisimetric sampled bisimulation mirrored-rooms -o d.npz
        bisimetric sampled bisimulation mirrored-rooms --steps 2e6 --seed 3 --plot-map map.png
        bisimetric sampled bisimulation data.npz --discount 0.9 -o d.npz
        bisimetric sampled bisimulation open-grid --sampler prioritised --seconds 60
        bisimetric sampled bisimulation open-grid --steps 50M --checkpoint run.npz
        bisimetric sampled bisimulation open-grid --steps 100M --resume run.npz -o d.npz
    """
    _sample("bisimulation", source, sampling, figures, output)


def on_policy(
    source: DataOptions,
    sampling: SamplingOptions,
    figures: FigureOptions,
    policy: PolicyArg = None,
    output: OutputArg = None,
) -> None:
    """d^pi from samples: two transitions of one policy at a time.

    Args:
        policy: `own` (the world's), `optimal`, or a .npy or .txt file with one action per state;
            for data it selects transitions, and without it all of them follow the policy
        output: save the distances: `bisimetric show`, `bisimetric explain` and NumPy read them

    Examples:
        bisimetric sampled on-policy mirrored-rooms-policy -o d.npz
        bisimetric sampled on-policy mirrored-rooms --policy optimal --steps 2e6 --seed 3
        bisimetric sampled on-policy data.npz --policy actions.txt -o d.npz
    """
    _sample("on_policy", source, sampling, figures, output, policy)


def _sample(
    kind: Kind,
    source: DataOptions,
    sampling: SamplingOptions,
    figures: FigureOptions,
    output: Path | None,
    policy: str | None = None,
) -> None:
    """Sample, save and report."""
    options = sampling.to_arguments()
    data = _read(source, sampling, figures, output)
    from bisimetric import sampled
    from bisimetric.cli.data_report import (
        compute_reference,
        describe_sampled,
        format_data,
        suggest_for_data,
    )
    from bisimetric.distance import Distance
    from bisimetric.mdp import MDP

    details: dict[str, str] = {}
    if kind == "on_policy":
        actions, details["policy"] = _resolve_policy(data, policy)
        options["policy"] = actions
    exact = [program_name(), "exact", kind.replace("_", "-"), *source.to_arguments()]
    exact += [] if policy is None else ["--policy", policy]
    if not isinstance(data, MDP):
        options["discount"] = source.discount
        details["data"] = format_data(data)
    reference = compute_reference(kind, data, options.get("policy"), source.discount)
    options["reference"] = reference.distance if reference and reference.complete else None
    sample: Callable[..., Distance] = getattr(sampled, kind)
    try:
        with translate_source(source.world, exact=exact), report_checkpoint(sampling.checkpoint):
            distance = sample(data, **options)
    except NotConverged as error:
        if not isinstance(error.partial, Distance):
            raise
        partial = add_metadata(error.partial, source, **details)
        raise NotConverged(_save_partial(str(error), partial, output), partial) from None
    suggestions = [] if isinstance(data, MDP) else suggest_for_data(distance, data, exact)
    write_result(
        distance,
        source,
        output,
        figures,
        describe=lambda found: describe_sampled(found, data, reference, sampling.checkpoint),
        suggestions=suggestions,
        **details,
    )


def _read(
    source: DataOptions, sampling: SamplingOptions, figures: FigureOptions, output: Path | None
) -> MDP | Transitions:
    """Load the source after all output paths and states have been validated."""
    inputs = [source.world, sampling.resume]
    validate_files(output, figures.paths, inputs=inputs, checkpoint=sampling.checkpoint)
    validate_files(sampling.checkpoint, inputs=[source.world])
    data = source.read()
    from bisimetric.mdp import MDP

    if isinstance(data, MDP):
        figures.validate_states(data)
        return data
    if data.states is None:
        raise InputError(
            f"{source.world} has observations {data.observations.shape[1:]} and no ids of states, "
            "which a distance matrix needs; collect it in Python with "
            "datasets.rollout(..., state_of=...)."
        )
    import numpy as np

    # The states of the distance matrix, whatever the actions.
    same = dataclasses.replace(
        data, actions=np.zeros(len(data), np.int64), num_actions=1, action_names=None
    )
    figures.validate_states(same.to_mdp(unseen="missing"))
    return data


def _resolve_policy(data: MDP | Transitions, policy: str | None) -> tuple[NDArray[Any] | None, str]:
    from bisimetric.mdp import MDP

    return resolve_policy(data, policy) if isinstance(data, MDP) else resolve_data_policy(policy)


def _save_partial(message: str, distance: Distance, output: Path | None) -> str:
    """Save distances that miss the requested tolerance; return the message with their path."""
    if output is None:
        return f"{message.removesuffix('.')}; -o d.npz would save the distances so far."
    distance.save(output)
    return f"{message.removesuffix('.')}; the distances so far are saved in {output}."
