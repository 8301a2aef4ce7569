"""`bisimetric uses transfer`: transfer the optimal policy of one MDP to another."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from tyro.conf import Positional, UseAppendAction, arg

from bisimetric.cli.options import FigureArg, OutputArg, WorldOptions, program_name, validate_files
from bisimetric.cli.output import save_array
from bisimetric.errors import InputError

if TYPE_CHECKING:
    from bisimetric.cli.report import Fact
    from bisimetric.mdp import MDP

OptionsArg = Annotated[
    tuple[tuple[str, ...], ...],
    UseAppendAction,
    arg(metavar="KEY=VALUE ...", help_behavior_hint=""),
]


def transfer(
    source: Annotated[Positional[str], arg(metavar="SOURCE")],
    target: Annotated[Positional[str], arg(metavar="TARGET")],
    rule: Literal["optimistic", "pessimistic", "nearest", "hopeful"] = "optimistic",
    kind: Literal["lax", "bisimulation"] = "lax",
    discount: Annotated[
        float | None,
        arg(aliases=["--gamma"], metavar="G", help_behavior_hint="(default: the worlds' own)"),
    ] = None,
    source_set: OptionsArg = (),
    target_set: OptionsArg = (),
    tol: Annotated[float | None, arg(metavar="T", help_behavior_hint="(default: 1e-6)")] = None,
    output: OutputArg = None,
    plot_policy: FigureArg = None,
) -> None:
    """Transfer the optimal policy of an MDP to another: regret bound and realised regret.

    Args:
        source: the MDP with a known solution, as listed by `bisimetric worlds`
        target: the MDP to act in; the two may have different states and actions
        rule: imitate the optimal policy (optimistic), take the largest lower bound (pessimistic)
            or upper bound (hopeful), or act like the nearest state (nearest)
        kind: the distance between both MDPs; bisimulation needs the same actions in both
        discount: discount factor, the same for both
        source_set: options of the source, as in `--source-set rows=5 columns=5`; may be repeated
        target_set: options of the target, likewise
        tol: proven bound on the error of each distance
        output: save the transferred policy as a .npy file, one action per state of the target
        plot_policy: save a figure of both worlds, arrows for actions, colours for regret

    Examples:
        bisimetric uses transfer mirrored-rooms open-grid --target-set rows=8 columns=8
        bisimetric uses transfer small.txt large.txt --discount 0.9 --plot-policy policy.png
        bisimetric uses transfer small.txt large.txt --rule nearest --kind bisimulation -o p.npy
    """
    worlds = [
        WorldOptions(source, discount, [list(group) for group in source_set]),
        WorldOptions(target, discount, [list(group) for group in target_set]),
    ]
    inputs = (source, target)
    validate_files(output, [plot_policy], content="a policy", suffix=".npy", inputs=inputs)
    mdps = _load_worlds(*worlds)
    if plot_policy is not None:
        from bisimetric.views.transfer import require_transfer_maps

        try:
            require_transfer_maps(*mdps)
        except InputError as error:
            raise InputError(f"cannot draw {plot_policy}: {error}") from None
    from bisimetric import exact, uses
    from bisimetric.cli import report
    from bisimetric.uses.policy_transfer import _disjoint_union

    if kind == "bisimulation" and not _disjoint_union.align_actions(*mdps).identical:
        raise InputError(
            f"--kind bisimulation compares equal actions, and {source} and {target} have "
            "different ones; use --kind lax."
        )
    solve = exact.bisimulation if kind == "bisimulation" else _disjoint_union.solve_lax
    result = uses.transfer(*mdps, solve(uses.disjoint_union(*mdps), tol=tol), rule=rule)
    save_array(output, result.policy)
    header = [
        report.describe_mdp("source", source, mdps[0]),
        report.describe_mdp("target", target, mdps[1]),
    ]
    report.emit(header, result.lines(), report.describe_saved([output]))
    fields = ("rule", "policy", "max_regret_bound", "max_regret", "regret_error")
    report.emit_fields(result, *fields, "trivial_bound", "is_vacuous", "better_than_random")
    if plot_policy is not None:
        from bisimetric import views

        views.save_figure(views.plot_transfer(result), plot_policy)
    report.emit(report.describe_saved([plot_policy]), _suggest_next(worlds[1], output))


def _load_worlds(source: WorldOptions, target: WorldOptions) -> tuple[MDP, MDP]:
    """Load both MDPs, which must have one discount."""
    mdps = []
    for world, flag in ((source, "--source-set"), (target, "--target-set")):
        try:
            mdps.append(world.load())
        except InputError as error:
            raise InputError(str(error).replace("--set", flag)) from None
    first, second = mdps
    if first.discount != second.discount:
        raise InputError(
            f"{source.world} has discount {first.discount:g} and {target.world} "
            f"{second.discount:g}, and they must be equal; choose one with --discount."
        )
    return first, second


def _suggest_next(target: WorldOptions, output: Path | None) -> Iterator[Fact]:
    """Yield what to try with the policy."""
    from bisimetric.cli.report import Fact

    if output is None:
        text = "add -o policy.npy to save the policy, or --plot-policy policy.png to draw it"
        yield Fact("next", text)
    else:
        words = [*target.to_arguments(), "--policy", str(output)]
        yield Fact("next", shlex.join([program_name(), "exact", "on-policy", *words]))
