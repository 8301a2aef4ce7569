"""`bisimetric uses explore`: an agent explores a world, with bonuses and without."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from tyro.conf import arg

from bisimetric.cli.learned_options import read_label
from bisimetric.cli.options import (
    FigureOptions,
    OutputArg,
    WorldArg,
    load_world,
    parse_count,
    reject_overwriting,
)
from bisimetric.errors import InputError

if TYPE_CHECKING:
    from bisimetric.cli.options import WorldOptions
    from bisimetric.distance import Distance
    from bisimetric.mdp import MDP
    from bisimetric.uses.exploration import experiment

BonusName = Literal["none", "counts", "distance", "nearest", "own-steps"]
BONUSES: dict[BonusName, tuple[str, experiment.BonusSource]] = {
    "none": ("no bonus", "none"),
    "counts": ("counts", "states"),
    "distance": ("distance", "distance"),
    "nearest": ("distance, nearest visit", "distance"),
    "own-steps": ("distance of own steps", "own steps"),
}


def bonus(
    world: WorldArg,
    bonuses: tuple[BonusName, ...] = ("none", "counts", "distance"),
    distance: Annotated[
        Path | None, arg(metavar="TABLE", help_behavior_hint="(default: d~, discount 0.9)")
    ] = None,
    steps: Annotated[str, arg(metavar="N")] = "10k",
    seeds: Annotated[int, arg(metavar="N")] = 5,
    start: Annotated[str, arg(metavar="STATE")] = "0",
    max_episode_steps: Annotated[int, arg(metavar="N")] = 200,
    bonus_scale: Annotated[float, arg(metavar="X")] = 0.001,
    initial_value: Annotated[float, arg(metavar="Q")] = 0.1,
    radius: Annotated[
        float | None, arg(metavar="X", help_behavior_hint="(default: the median distance)")
    ] = None,
    output: OutputArg = None,
    plot_curves: Annotated[Path | None, arg(metavar="PNG", help_behavior_hint="")] = None,
) -> None:
    """Does a distance help to explore a world? Agents with several bonuses, and what they find.

    The agent is tabular Q-learning. A bonus is paid for states that are new: not visited
    (counts), or not near to what was, by a distance, which is that of the world's own model.

    Args:
        arms: the bonuses to compare
        table: a table of the world's states saved with -o, for the bonus by distance
        steps: of each run; 10000, 10_000, 1e4 or 10k
        keys: how many runs of each arm
        start: the state that episodes start in, by name or id
        max_episode_steps: cut an episode after so many
        scale: the largest bonus, in units of the largest reward
        initial: what the agent expects of actions that it never took, in the same units
        radius: how far away, by the distance, a visit counts
        output: save the curves as a .npz file
        png: save a picture of the curves

    Examples:
        bisimetric uses explore mirrored-rooms
        bisimetric uses explore MiniGrid-FourRooms-v0 --keys 10 --steps 40k --png explore.png
        bisimetric uses explore rooms.txt --table d.npz --arms counts distance -o curves.npz
    """
    FigureOptions(plot_map=plot_curves).validate()
    taken = parse_count("--steps", steps, minimum=1)
    if output is not None and output.suffix != ".npz":
        raise InputError(f"cannot save curves as {output}; the name must end in .npz.")
    if not bonuses:
        raise InputError("--arms: there is nothing to compare; name at least one.")
    mdp = load_world(world, output)
    reject_overwriting([output, plot_curves], world.world, distance)
    from bisimetric import views
    from bisimetric.cli import report
    from bisimetric.uses.exploration import experiment
    from bisimetric.views.exploration import plot_exploration
    from bisimetric.views.terminal import format_comparison

    wanted = {"distance", "nearest"} & set(bonuses)
    d = _read_distance(mdp, world, distance) if wanted else None
    chosen: dict[str, experiment.ExplorationArm] = {}
    for kind in bonuses:
        name, source = BONUSES[kind]
        chosen[name] = experiment.ExplorationArm(
            source,
            d if kind in wanted else None,
            scale=bonus_scale,
            initial_value=initial_value,
            radius=radius,
            rule="nearest" if kind == "nearest" else "counts",
        )
    found = experiment.compare(
        mdp, chosen, steps=taken, num_seeds=seeds, start=start, max_episode_steps=max_episode_steps
    )
    if output is not None:
        found.save(output)
    said = _describe(mdp, world, d, distance)
    report.print_lines(said, [""], format_comparison(found), [""], report.describe_saved([output]))
    if plot_curves is not None:
        views.save_figure(plot_exploration({world.world: found}), plot_curves)
    report.print_lines(report.describe_saved([plot_curves]))


def _read_distance(mdp: MDP, world: WorldOptions, path: Path | None) -> Distance:
    """The distance that was given, or that of the world."""
    from bisimetric import exact
    from bisimetric.distance import Distance
    from bisimetric.uses.exploration.experiment import DISTANCE_DISCOUNT

    if path is None:
        return exact.bisimulation(mdp.replace(discount=min(mdp.discount, DISTANCE_DISCOUNT)))
    if read_label(path) is not None:
        raise InputError(
            f"{path} is a network, not a table; `bisimetric learned ... --table d.npz` makes the "
            "table of a world."
        )
    found = Distance.load(path)
    if found.mdp.num_states != mdp.num_states:
        raise InputError(
            f"{path} knows {found.mdp.num_states} states and {world.world} has {mdp.num_states}; "
            "make the table of this world."
        )
    return found


def _describe(
    mdp: MDP, world: WorldOptions, d: Distance | None, path: Path | None
) -> Iterator[str]:
    from bisimetric.cli import report

    yield f"world      {world.world}: {report.format_mdp(mdp)}"
    if d is None:
        return
    of = "" if path is None else f", {path}"
    yield f"distance   {report.TITLES[d.kind]}, discount {d.mdp.discount:g}{of}"
    if d.values.max() == 0:
        yield "           all are 0: by it no state is new"
    elif path is None:
        yield "           of the world's own model: it knows where the rewards are"
