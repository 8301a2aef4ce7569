"""The commands: parse, call, save. Each docstring is also what `--help` says."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import arg

from bisimetric.cli.arguments import (
    Accurate,
    Drawn,
    Key,
    Output,
    Pairs,
    Pictures,
    Policy,
    Samples,
    Source,
    State,
    Table,
    World,
    check_outputs,
    chosen_policy,
    program,
)
from bisimetric.errors import InputError
from bisimetric.files import written_beside

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bisimetric.distance import Distance
    from bisimetric.exact.queries import Answer
    from bisimetric.mdp import MDP

# NumPy, SciPy, Numba and Matplotlib are imported only inside the functions that compute, so
# that `--help` and mistakes in the command line are answered at once.


def worlds() -> None:
    """List the built-in worlds and their options, and the characters of a text grid.

    Examples:
        bisimetric worlds
    """
    from bisimetric.cli.report import world_lines

    print(*world_lines(), sep="\n")


def exact_bisimulation(
    world: World,
    accuracy: Accurate,
    pictures: Drawn,
    output: Output = None,
    pairs: Pairs = (),
    samples: Samples = None,
    key: Key = None,
) -> None:
    """d~: two states take the same actions, and the worst one tells how far apart they are.

    Args:
        output: save the table: `bisimetric show`, `bisimetric explain` and NumPy read it
        pairs: the distance of two states only, without a table; may be repeated
        samples: estimate the table from this many sampled successors a state and action
        key: of the random numbers of --samples

    Examples:
        bisimetric exact bisimulation mirrored-rooms -o d.npz
        bisimetric exact bisimulation mirrored-rooms --from 4,3 --plot map.png
        bisimetric exact bisimulation open-grid --set rows=20 columns=30 --discount 0.9
        bisimetric exact bisimulation my-grid.txt --dtype float32 --tol 1e-3
        bisimetric exact bisimulation mirrored-rooms --pairs 1,5 5,5 --pairs 1,1 5,1
        bisimetric exact bisimulation model.npz --discount 0.9 --samples 50 --key 1
    """
    if key is not None and samples is None:
        raise InputError(f"--key {key} is for --samples; give both or none.")
    if pairs and samples is not None:
        raise InputError("--pairs gives proven distances; leave --samples out.")
    mdp = _loaded(world, output, pictures, pairs)
    from bisimetric import exact

    if pairs:
        _finish_query(mdp, exact.bisimulation(mdp, pairs=pairs, tol=accuracy.tol), world)
        return
    sampling = {} if samples is None else {"samples": samples, "key": key or 0}
    distance = exact.bisimulation(mdp, tol=accuracy.tol, dtype=accuracy.dtype, **sampling)
    _finish(distance, world, output, pictures)


def exact_on_policy(
    world: World,
    accuracy: Accurate,
    pictures: Drawn,
    policy: Policy = None,
    output: Output = None,
    pairs: Pairs = (),
) -> None:
    """d^pi: two states follow a policy, and their rewards tell how far apart they are.

    Args:
        policy: `own` (the world's), `optimal`, or a .npy or .txt file with one action a state
        output: save the table: `bisimetric show`, `bisimetric explain` and NumPy read it
        pairs: the distance of two states only, without a table; may be repeated

    Examples:
        bisimetric exact on-policy mirrored-rooms-policy -o d.npz
        bisimetric exact on-policy mirrored-rooms --policy optimal --plot map.png
        bisimetric exact on-policy my-grid.txt --policy actions.txt
        bisimetric exact on-policy mirrored-rooms-policy --pairs 1,5 5,5
    """
    mdp = _loaded(world, output, pictures, pairs)
    actions, called = chosen_policy(mdp, policy)
    from bisimetric import exact

    if pairs:
        query = exact.on_policy(mdp, actions, pairs=pairs, tol=accuracy.tol)
        _finish_query(mdp, query, world, policy=called)
        return
    distance = exact.on_policy(mdp, actions, tol=accuracy.tol, dtype=accuracy.dtype)
    _finish(distance, world, output, pictures, policy=called)


def exact_lax(
    world: World,
    accuracy: Accurate,
    pictures: Drawn,
    output: Output = None,
    pairs: Pairs = (),
) -> None:
    """d_lax: each action of a state is matched by the best action of the other.

    Args:
        output: save the table: `bisimetric show`, `bisimetric explain` and NumPy read it
        pairs: the distance of two states only, without a table; may be repeated

    Examples:
        bisimetric exact lax mirrored-rooms -o d.npz --heatmap table.png
        bisimetric exact lax pessimism --discount 0.5
        bisimetric exact lax mirrored-rooms --pairs 1,5 5,5
    """
    mdp = _loaded(world, output, pictures, pairs)
    from bisimetric import exact

    if pairs:
        _finish_query(mdp, exact.lax(mdp, pairs=pairs, tol=accuracy.tol), world)
        return
    _finish(exact.lax(mdp, tol=accuracy.tol, dtype=accuracy.dtype), world, output, pictures)


def exact_mico(
    world: World, accuracy: Accurate, pictures: Drawn, policy: Policy = None, output: Output = None
) -> None:
    """MICo: two states follow a policy independently, so that one may be far from itself.

    Args:
        policy: `own` (the world's), `optimal`, or a .npy or .txt file with one action a state
        output: save the table: `bisimetric show`, `bisimetric explain` and NumPy read it

    Examples:
        bisimetric exact mico mirrored-rooms-policy -o d.npz
        bisimetric exact mico duplicated-grid --policy optimal --heatmap table.png
    """
    mdp = _loaded(world, output, pictures)
    actions, called = chosen_policy(mdp, policy)
    from bisimetric import exact

    distance = exact.mico(mdp, actions, tol=accuracy.tol, dtype=accuracy.dtype)
    _finish(distance, world, output, pictures, policy=called)


def relation_bisimulation(world: World, output: Output = None) -> None:
    """The classes of states that behave alike under every action.

    Args:
        output: save the class of every state as a .npy file

    Examples:
        bisimetric relation bisimulation mirrored-rooms
        bisimetric relation bisimulation random --set states=100000 -o labels.npy
    """
    mdp = _loaded(world, output)
    from bisimetric import relation

    _finish_relation(mdp, relation.bisimulation(mdp), world, output)


def relation_on_policy(world: World, policy: Policy = None, output: Output = None) -> None:
    """The classes of states that behave alike under a policy.

    Args:
        policy: `own` (the world's), `optimal`, or a .npy or .txt file with one action a state
        output: save the class of every state as a .npy file

    Examples:
        bisimetric relation on-policy mirrored-rooms-policy
        bisimetric relation on-policy mirrored-rooms --policy optimal -o labels.npy
    """
    mdp = _loaded(world, output)
    actions, called = chosen_policy(mdp, policy)
    from bisimetric import relation

    _finish_relation(mdp, relation.on_policy(mdp, actions), world, output, policy=called)


def relation_lax(world: World, output: Output = None) -> None:
    """The classes of states that behave alike when actions may be renamed state by state.

    Args:
        output: save the class of every state as a .npy file

    Examples:
        bisimetric relation lax pessimism
    """
    mdp = _loaded(world, output)
    from bisimetric import relation

    _finish_relation(mdp, relation.lax(mdp), world, output)


def explain(table: Table, first: State, second: State) -> None:
    """Why two states are as far apart as they are: the steps that add up to their distance.

    Args:
        table: a table saved with -o
        first: a state, by name or id
        second: another one

    Examples:
        bisimetric explain d.npz 1,5 5,5
        bisimetric explain d.npz 0 30
    """
    from bisimetric.distance import Distance

    print(Distance.load(table).explain(first, second))


def show(table: Table, pictures: Drawn, nearest: Annotated[int, arg(metavar="K")] = 5) -> None:
    """What is in a saved table: how it was made, a map, the nearest states, and pictures.

    Args:
        table: a table saved with -o
        nearest: how many of the nearest states to list

    Examples:
        bisimetric show d.npz --from 4,3 --nearest 10
        bisimetric show d.npz --from 4,3 --plot map.png --heatmap table.png --all-maps all.png
    """
    pictures.check()
    from bisimetric import views
    from bisimetric.cli import report
    from bisimetric.distance import Distance

    distance = Distance.load(table)
    pictures.check_world(distance.mdp)
    origin = distance.mdp.state(pictures.origin)
    near = report.nearest_lines(distance, origin, nearest)
    drawn = [views.terminal_map(distance, origin)]
    report.say(report.table_lines(distance), report.made_lines(distance), [""], near, [""], drawn)
    pictures.draw(distance)
    report.say(report.saved_lines(pictures.paths))


def demo(output: Annotated[Path, arg(aliases=["-o"], metavar="FOLDER")] = Path("demo")) -> int:
    """The three distances on the paper's 31 states: checked, shown, drawn and saved.

    Args:
        output: where the tables and pictures go; it is made where it is missing

    Examples:
        bisimetric demo
        bisimetric demo --output somewhere/else
    """
    from bisimetric import demo as library

    return library.run(output, program=program())


def _loaded(
    source: Source, output: Path | None, pictures: Pictures | None = None, pairs: Pairs = ()
) -> MDP:
    """The world, once every place to save to and every state is known to be good."""
    paths = [path for path in (output, *(pictures.paths if pictures else [])) if path]
    check_outputs(*paths)
    if pairs and paths:
        raise InputError(f"--pairs makes no table to save in {paths[0]}; leave one of them out.")
    if pictures:
        pictures.check()
    mdp = source.load()
    if pictures:
        pictures.check_world(mdp)
    for state in itertools.chain(*pairs):
        mdp.state(state)
    return mdp


def _finish(
    distance: Distance, source: Source, output: Path | None, pictures: Pictures, **about: str
) -> None:
    from bisimetric.cli import report

    made = {**distance.made, "world": source.world, **about}
    distance = dataclasses.replace(distance, made=made)
    if output is not None:
        distance.save(output)
    report.say(report.table_lines(distance), report.saved_lines([output]))
    pictures.draw(distance)
    report.say(report.saved_lines(pictures.paths), report.next_lines(distance, output, program()))


def _finish_query(mdp: MDP, query: Answer, source: Source, **about: str) -> None:
    from bisimetric.cli import report

    report.say(report.query_lines(mdp, query, source.world, **about))


def _finish_relation(
    mdp: MDP, labels: NDArray[Any], source: Source, output: Path | None, **about: str
) -> None:
    import numpy as np

    from bisimetric.cli import report

    if output is not None:
        with written_beside(output) as beside, open(beside, "wb") as file:
            np.save(file, labels)
    report.say(report.class_lines(mdp, labels, source.world, **about), report.saved_lines([output]))
