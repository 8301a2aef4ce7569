"""`bisimetric sampled`: distances from experience, a pair of transitions at a time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from bisimetric.cli.arguments import Drawn, Output, Pictures, Policy, program
from bisimetric.cli.commands.endings import finish, named
from bisimetric.cli.interrupts import resumable
from bisimetric.cli.policies import chosen_policy, policy_of_data
from bisimetric.cli.sampling import (
    Experience,
    Experienced,
    Sampled,
    Sampling,
    opened,
)
from bisimetric.errors import InputError, NotConverged

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bisimetric.distance import Distance, Kind
    from bisimetric.mdp import MDP
    from bisimetric.transitions import Transitions


def bisimulation(
    experience: Experienced, sampling: Sampled, pictures: Drawn, output: Output = None
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
    source = opened(experience, sampling, output, pictures)
    _sample("bisimulation", experience, source, sampling, pictures, output)


def on_policy(
    experience: Experienced,
    sampling: Sampled,
    pictures: Drawn,
    policy: Policy = None,
    output: Output = None,
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

    source = opened(experience, sampling, output, pictures)
    chosen = chosen_policy(source, policy) if isinstance(source, MDP) else policy_of_data(policy)
    followed = Followed(*chosen, policy)
    _sample("on_policy", experience, source, sampling, pictures, output, followed)


class Followed(NamedTuple):
    """The policy of a run: its actions, how to call it, and what was typed for it."""

    actions: NDArray[Any] | None
    called: str
    typed: str | None


def _sample(
    kind: Kind,
    experience: Experience,
    source: MDP | Transitions,
    sampling: Sampling,
    pictures: Pictures,
    output: Path | None,
    followed: Followed | None = None,
) -> None:
    """Draws, saves and reports."""
    options = sampling.arguments()
    from bisimetric import sampled
    from bisimetric.cli.experience import in_shell_words, next_of_data, sampled_lines, size
    from bisimetric.cli.truth import truth_of
    from bisimetric.distance import Distance
    from bisimetric.transitions import Transitions

    solve = [program(), "exact", kind.replace("_", "-"), *experience.words()]
    about: dict[str, str] = {}
    if isinstance(source, Transitions):
        options["discount"] = experience.discount
        about["data"] = size(source)
    if followed is not None:
        options["policy"] = followed.actions
        about["policy"] = followed.called
        solve += [] if followed.typed is None else ["--policy", followed.typed]
    truth = truth_of(kind, source, options.get("policy"), experience.discount)
    options["truth"] = truth.distance if truth and truth.whole else None
    draw: Callable[..., Distance] = getattr(sampled, kind)
    try:
        with resumable(sampling.checkpoint):
            distance = draw(source, **options)
    except NotConverged as error:
        if not isinstance(error.partial, Distance):
            raise
        table = named(error.partial, experience, **about)
        raise NotConverged(_kept(in_shell_words(str(error), solve), table, output), table) from None
    except InputError as error:
        raise InputError(in_shell_words(str(error), solve)) from None
    finish(
        distance,
        experience,
        output,
        pictures,
        lines=lambda found: sampled_lines(found, source, truth, sampling.checkpoint),
        after=next_of_data(distance, source, solve) if isinstance(source, Transitions) else [],
        **about,
    )


def _kept(message: str, table: Distance, output: Path | None) -> str:
    """Saves a table that fell short of what was asked for, and says where."""
    if output is None:
        return f"{message.removesuffix('.')}; -o d.npz would keep the table so far."
    table.save(output)
    return f"{message.removesuffix('.')}; the table so far is saved in {output}."
