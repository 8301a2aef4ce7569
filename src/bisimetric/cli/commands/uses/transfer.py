"""`bisimetric uses transfer`: the best policy of one world carried to another."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from tyro.conf import Positional, UseAppendAction, arg

from bisimetric.cli.options import OutputArg, WorldOptions, program_name
from bisimetric.cli.output import FigurePathArg, save_array, validate_files
from bisimetric.errors import InputError

if TYPE_CHECKING:
    from bisimetric.mdp import MDP

SourceArg = Annotated[Positional[str], arg(metavar="SOURCE")]
TargetArg = Annotated[Positional[str], arg(metavar="TARGET")]
OptionsArg = Annotated[
    tuple[tuple[str, ...], ...],
    UseAppendAction,
    arg(metavar="KEY=VALUE ...", help_behavior_hint=""),
]
DiscountArg = Annotated[
    float | None, arg(metavar="G", help_behavior_hint="(default: the worlds' own)")
]
TolArg = Annotated[float | None, arg(metavar="T", help_behavior_hint="(default: 1e-6)")]


def transfer(
    source: SourceArg,
    target: TargetArg,
    rule: Literal["optimistic", "pessimistic", "nearest", "hopeful"] = "optimistic",
    kind: Literal["lax", "bisimulation"] = "lax",
    discount: DiscountArg = None,
    source_set: OptionsArg = (),
    target_set: OptionsArg = (),
    tol: TolArg = None,
    output: OutputArg = None,
    plot_policy: FigurePathArg = None,
) -> None:
    """The best policy of a world carried to another: the loss that is promised, and the true one.

    Args:
        source: the world to learn from, as `bisimetric worlds` lists them
        target: the world to act in; the two may have different states and actions
        rule: imitate the best policy (optimistic), take the largest lower bound (pessimistic) or
            upper bound (hopeful), or do as the nearest state does (nearest)
        kind: the distance between the two worlds; bisimulation needs the same actions in both
        discount: how much the next step counts, the same in both worlds
        source_set: options of the source, as in `--source-set rows=5 columns=5`; may be repeated
        target_set: options of the target, likewise
        tol: the largest error that any distance may have, proven
        output: save the carried policy as a .npy file, one action a state of the target
        png: save a picture of both worlds, with arrows, in the colours of the loss

    Examples:
        bisimetric uses transfer mirrored-rooms open-grid --target-set rows=8 columns=8 --png p.png
        bisimetric uses transfer small.txt large.txt --discount 0.9 -o policy.npy
        bisimetric uses transfer small.txt large.txt --rule nearest --kind bisimulation
    """
    worlds = [
        WorldOptions(source, discount, [list(group) for group in source_set]),
        WorldOptions(target, discount, [list(group) for group in target_set]),
    ]
    validate_files(output, plot_policy, content="a policy", suffix=".npy", inputs=(source, target))
    mdps = _load_worlds(*worlds)
    if plot_policy is not None:
        from bisimetric.views.transfer import require_transfer_maps

        try:
            require_transfer_maps(*mdps)
        except InputError as error:
            raise InputError(
                str(error).replace("plot_transfer", f"cannot draw {plot_policy}")
            ) from None
    from bisimetric import exact, uses
    from bisimetric.cli import report
    from bisimetric.uses.policy_transfer import _disjoint_union

    if kind == "bisimulation" and not _disjoint_union.align_actions(*mdps).identical:
        raise InputError(
            f"--kind bisimulation compares equal actions, and {source} and {target} have "
            "different ones; use --kind lax."
        )
    solve = exact.bisimulation if kind == "bisimulation" else _disjoint_union.solve_lax
    found = uses.transfer(*mdps, solve(uses.disjoint_union(*mdps), tol=tol), rule=rule)
    save_array(output, found.policy)
    named = [f"source     {source}: {report.format_mdp(mdps[0])}"]
    named.append(f"target     {target}: {report.format_mdp(mdps[1])}")
    report.print_lines(named, found.lines(), report.describe_saved([output]))
    if plot_policy is not None:
        from bisimetric import views

        views.save_figure(views.plot_transfer(found), plot_policy)
    report.print_lines(report.describe_saved([plot_policy]), _suggest_next(worlds[1], output))


def _load_worlds(source: WorldOptions, target: WorldOptions) -> tuple[MDP, MDP]:
    """Both worlds, with one discount."""
    mdps = []
    for world, option in ((source, "--source-set"), (target, "--target-set")):
        try:
            mdps.append(world.load())
        except InputError as error:
            raise InputError(str(error).replace("--set", option)) from None
    first, second = mdps
    if first.discount != second.discount:
        raise InputError(
            f"{source.world} has discount {first.discount:g} and {target.world} "
            f"{second.discount:g}, and they must be equal; choose one with --discount."
        )
    return first, second


def _suggest_next(target: WorldOptions, output: Path | None) -> Iterator[str]:
    """What to try with the policy."""
    if output is None:
        yield "next: add -o policy.npy to keep the policy, or --png picture.png to see it"
    else:
        words = [
            program_name(),
            "exact",
            "on-policy",
            *target.to_arguments(),
            "--policy",
            str(output),
        ]
        yield "next: " + shlex.join(words)
