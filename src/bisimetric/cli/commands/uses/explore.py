"""`bisimetric uses explore`: an agent explores a world, with bonuses and without."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from tyro.conf import arg

from bisimetric.cli.arguments import Output, Pictures, World, count, keep_inputs, loaded
from bisimetric.cli.learning import label_of
from bisimetric.errors import InputError

if TYPE_CHECKING:
    from bisimetric.cli.arguments import Source
    from bisimetric.distance import Distance
    from bisimetric.mdp import MDP
    from bisimetric.uses.exploration import trials

Kind = Literal["none", "counts", "distance", "nearest", "own-steps"]
ARMS: dict[Kind, tuple[str, trials.Source]] = {
    "none": ("no bonus", "none"),
    "counts": ("counts", "states"),
    "distance": ("distance", "distance"),
    "nearest": ("distance, nearest visit", "distance"),
    "own-steps": ("distance of own steps", "own steps"),
}


def explore(
    world: World,
    arms: tuple[Kind, ...] = ("none", "counts", "distance"),
    table: Annotated[
        Path | None, arg(metavar="TABLE", help_behavior_hint="(default: d~, discount 0.9)")
    ] = None,
    steps: Annotated[str, arg(metavar="N")] = "10k",
    keys: Annotated[int, arg(metavar="N")] = 5,
    start: Annotated[str, arg(metavar="STATE")] = "0",
    max_episode_steps: Annotated[int, arg(metavar="N")] = 200,
    scale: Annotated[float, arg(metavar="X")] = 0.001,
    initial: Annotated[float, arg(metavar="Q")] = 0.1,
    radius: Annotated[
        float | None, arg(metavar="X", help_behavior_hint="(default: the median distance)")
    ] = None,
    output: Output = None,
    png: Annotated[Path | None, arg(metavar="PNG", help_behavior_hint="")] = None,
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
    Pictures(plot=png).check()
    taken = count("--steps", steps, least=1)
    if output is not None and output.suffix != ".npz":
        raise InputError(f"cannot save curves as {output}; the name must end in .npz.")
    if not arms:
        raise InputError("--arms: there is nothing to compare; name at least one.")
    mdp = loaded(world, output)
    keep_inputs([output, png], world.world, table)
    from bisimetric import views
    from bisimetric.cli import report
    from bisimetric.uses.exploration import trials
    from bisimetric.views.exploration import exploration, lines

    wanted = {"distance", "nearest"} & set(arms)
    d = _distance(mdp, world, table) if wanted else None
    chosen: dict[str, trials.Arm] = {}
    for kind in arms:
        name, source = ARMS[kind]
        chosen[name] = trials.Arm(
            source,
            d if kind in wanted else None,
            scale=scale,
            initial=initial,
            radius=radius,
            rule="nearest" if kind == "nearest" else "counts",
        )
    found = trials.compare(
        mdp, chosen, steps=taken, keys=keys, start=start, max_episode_steps=max_episode_steps
    )
    if output is not None:
        found.save(output)
    said = _lines(mdp, world, d, table)
    report.say(said, [""], lines(found), [""], report.saved_lines([output]))
    if png is not None:
        views.save(exploration({world.world: found}), png)
    report.say(report.saved_lines([png]))


def _distance(mdp: MDP, world: Source, table: Path | None) -> Distance:
    """The distance that was given, or that of the world."""
    from bisimetric import exact
    from bisimetric.distance import Distance
    from bisimetric.uses.exploration.estimates import DISCOUNT

    if table is None:
        return exact.bisimulation(mdp.replace(discount=min(mdp.discount, DISCOUNT)))
    if label_of(table) is not None:
        raise InputError(
            f"{table} is a network, not a table; `bisimetric learned ... --table d.npz` makes the "
            "table of a world."
        )
    found = Distance.load(table)
    if found.mdp.num_states != mdp.num_states:
        raise InputError(
            f"{table} knows {found.mdp.num_states} states and {world.world} has {mdp.num_states}; "
            "make the table of this world."
        )
    return found


def _lines(mdp: MDP, world: Source, d: Distance | None, table: Path | None) -> Iterator[str]:
    from bisimetric.cli import report

    yield f"world      {world.world}: {report.counted(mdp)}"
    if d is None:
        return
    of = "" if table is None else f", {table}"
    yield f"distance   {report.TITLES[d.kind]}, discount {d.mdp.discount:g}{of}"
    if d.values.max() == 0:
        yield "           all are 0: by it no state is new"
    elif table is None:
        yield "           of the world's own model: it knows where the rewards are"
