"""`bisimetric sampled`: distances from experience, a pair of transitions at a time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from bisimetric.cli.options import (
    FigureArg,
    FigureOptions,
    OutputArg,
    PolicyArg,
    program_name,
    resolve_data_policy,
    resolve_policy,
)
from bisimetric.cli.output import add_metadata, report_checkpoint, write_result
from bisimetric.cli.sampled_options import (
    DataArg,
    DataOptions,
    SamplingArg,
    SamplingOptions,
    open_sampled_source,
)
from bisimetric.errors import InputError, NotConverged

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bisimetric.distance import Distance, Kind
    from bisimetric.mdp import MDP
    from bisimetric.transitions import Transitions


def bisimulation(
    experience: DataArg, sampling: SamplingArg, figures: FigureArg, output: OutputArg = None
) -> None:
    """d~ from samples: two transitions with the same action at a time (Castro 2020, equation 3).

    Args:
        output: save the table: `bisimetric show`, `bisimetric explain` and NumPy read it

    Examples:
        bisimetric sampled bisimulation mirrored-rooms -o d.npz
        bisimetric sampled bisimulation mirrored-rooms --steps 2e6 --key 3 --from 4,3 --plot m.png
        bisimetric sampled bisimulation data.npz --discount 0.9 -o d.npz
        bisimetric sampled bisimulation open-grid --sampler prioritised --seconds 60
        bisimetric sampled bisimulation open-grid --steps 50M --checkpoint run.npz
        bisimetric sampled bisimulation open-grid --steps 100M --resume run.npz -o d.npz
    """
    source = open_sampled_source(experience, sampling, output, figures)
    _sample("bisimulation", experience, source, sampling, figures, output)


def on_policy(
    experience: DataArg,
    sampling: SamplingArg,
    figures: FigureArg,
    policy: PolicyArg = None,
    output: OutputArg = None,
) -> None:
    """d^pi from samples: two transitions of one policy at a time.

    Args:
        policy: `own` (the world's), `optimal`, or a .npy or .txt file with one action a state;
            of data it picks the steps, and without it all of them follow the policy
        output: save the table: `bisimetric show`, `bisimetric explain` and NumPy read it

    Examples:
        bisimetric sampled on-policy mirrored-rooms-policy -o d.npz
        bisimetric sampled on-policy mirrored-rooms --policy optimal --steps 2e6 --key 3
        bisimetric sampled on-policy data.npz --policy actions.txt -o d.npz
    """
    from bisimetric.mdp import MDP

    source = open_sampled_source(experience, sampling, output, figures)
    chosen = (
        resolve_policy(source, policy) if isinstance(source, MDP) else resolve_data_policy(policy)
    )
    followed = PolicyChoice(*chosen, policy)
    _sample("on_policy", experience, source, sampling, figures, output, followed)


class PolicyChoice(NamedTuple):
    """The policy of a run: its actions, how to call it, and what was typed for it."""

    actions: NDArray[Any] | None
    name: str
    argument: str | None


def _sample(
    kind: Kind,
    experience: DataOptions,
    source: MDP | Transitions,
    sampling: SamplingOptions,
    figures: FigureOptions,
    output: Path | None,
    policy: PolicyChoice | None = None,
) -> None:
    """Draws, saves and reports."""
    options = sampling.to_arguments()
    from bisimetric import sampled
    from bisimetric.cli.data_report import (
        compute_reference,
        describe_sampled,
        format_data,
        suggest_for_data,
        translate_remedy,
    )
    from bisimetric.distance import Distance
    from bisimetric.transitions import Transitions

    solve = [program_name(), "exact", kind.replace("_", "-"), *experience.to_arguments()]
    about: dict[str, str] = {}
    if isinstance(source, Transitions):
        options["discount"] = experience.discount
        about["data"] = format_data(source)
    if policy is not None:
        options["policy"] = policy.actions
        about["policy"] = policy.name
        solve += [] if policy.argument is None else ["--policy", policy.argument]
    truth = compute_reference(kind, source, options.get("policy"), experience.discount)
    options["truth"] = truth.distance if truth and truth.complete else None
    draw: Callable[..., Distance] = getattr(sampled, kind)
    try:
        with report_checkpoint(sampling.checkpoint):
            distance = draw(source, **options)
    except NotConverged as error:
        if not isinstance(error.partial, Distance):
            raise
        table = add_metadata(error.partial, experience, **about)
        raise NotConverged(
            _save_partial(translate_remedy(str(error), solve), table, output), table
        ) from None
    except InputError as error:
        raise InputError(translate_remedy(str(error), solve)) from None
    write_result(
        distance,
        experience,
        output,
        figures,
        describe=lambda found: describe_sampled(found, source, truth, sampling.checkpoint),
        suggestions=suggest_for_data(distance, source, solve)
        if isinstance(source, Transitions)
        else [],
        **about,
    )


def _save_partial(message: str, distance: Distance, output: Path | None) -> str:
    """Saves a table that fell short of what was asked for, and says where."""
    if output is None:
        return f"{message.removesuffix('.')}; -o d.npz would keep the table so far."
    distance.save(output)
    return f"{message.removesuffix('.')}; the table so far is saved in {output}."
