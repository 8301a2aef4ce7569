"""`bisimetric exact`: distances between all states, each to a proven error."""

from __future__ import annotations

from bisimetric.cli.options import (
    AccuracyArg,
    DeviceArg,
    FigureArg,
    OptionalSeedArg,
    OutputArg,
    PairsArg,
    PolicyArg,
    SamplesArg,
    WorldArg,
    load_world,
    resolve_policy,
)
from bisimetric.cli.output import print_query, write_result
from bisimetric.errors import InputError


def bisimulation(
    world: WorldArg,
    accuracy: AccuracyArg,
    figures: FigureArg,
    output: OutputArg = None,
    pairs: PairsArg = (),
    samples: SamplesArg = None,
    seed: OptionalSeedArg = None,
    device: DeviceArg = "cpu",
) -> None:
    """d~: two states take the same actions, and the worst one tells how far apart they are.

    Args:
        output: save the table: `bisimetric show`, `bisimetric explain` and NumPy read it
        pairs: the distance of two states only, without a table; may be repeated
        samples: estimate the table from this many sampled successors a state and action
        key: of the random numbers of --samples
        device: what to compute on; gpu: deterministic worlds on an NVIDIA GPU

    Examples:
        bisimetric exact bisimulation mirrored-rooms -o d.npz
        bisimetric exact bisimulation mirrored-rooms --from 4,3 --plot map.png
        bisimetric exact bisimulation open-grid --set rows=20 columns=30 --discount 0.9
        bisimetric exact bisimulation my-grid.txt --dtype float32 --tol 1e-3
        bisimetric exact bisimulation mirrored-rooms --pairs 1,5 5,5 --pairs 1,1 5,1
        bisimetric exact bisimulation model.npz --discount 0.9 --samples 50 --key 1
        bisimetric exact bisimulation large.npz --dtype float32 --tol 1e-3 --device gpu -o d.npz
    """
    if seed is not None and samples is None:
        raise InputError(f"--key {seed} is for --samples; give both or none.")
    if pairs and samples is not None:
        raise InputError("--pairs gives proven distances; leave --samples out.")
    _validate_device(device, pairs, samples)
    mdp = load_world(world, output, figures, pairs)
    from bisimetric import exact

    if pairs:
        print_query(mdp, exact.query(mdp, pairs, tol=accuracy.tol), world)
        return
    distance = exact.bisimulation(
        mdp, tol=accuracy.tol, dtype=accuracy.dtype, samples=samples, seed=seed or 0, device=device
    )
    write_result(distance, world, output, figures)


def on_policy(
    world: WorldArg,
    accuracy: AccuracyArg,
    figures: FigureArg,
    policy: PolicyArg = None,
    output: OutputArg = None,
    pairs: PairsArg = (),
    device: DeviceArg = "cpu",
) -> None:
    """d^pi: two states follow a policy, and their rewards tell how far apart they are.

    Args:
        policy: `own` (the world's), `optimal`, or a .npy or .txt file with one action a state
        output: save the table: `bisimetric show`, `bisimetric explain` and NumPy read it
        pairs: the distance of two states only, without a table; may be repeated
        device: what to compute on; gpu: deterministic chains on an NVIDIA GPU

    Examples:
        bisimetric exact on-policy mirrored-rooms-policy -o d.npz
        bisimetric exact on-policy mirrored-rooms --policy optimal --plot map.png
        bisimetric exact on-policy my-grid.txt --policy actions.txt
        bisimetric exact on-policy mirrored-rooms-policy --pairs 1,5 5,5
    """
    _validate_device(device, pairs)
    mdp = load_world(world, output, figures, pairs)
    actions, called = resolve_policy(mdp, policy)
    from bisimetric import exact

    if pairs:
        query = exact.query(
            mdp, pairs, kind="on_policy", policy=actions, tol=accuracy.tol
        )
        print_query(mdp, query, world, policy=called)
        return
    distance = exact.on_policy(mdp, actions, tol=accuracy.tol, dtype=accuracy.dtype, device=device)
    write_result(distance, world, output, figures, policy=called)


def lax(
    world: WorldArg,
    accuracy: AccuracyArg,
    figures: FigureArg,
    output: OutputArg = None,
    pairs: PairsArg = (),
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
    mdp = load_world(world, output, figures, pairs)
    from bisimetric import exact

    if pairs:
        print_query(mdp, exact.query(mdp, pairs, kind="lax", tol=accuracy.tol), world)
        return
    write_result(exact.lax(mdp, tol=accuracy.tol, dtype=accuracy.dtype), world, output, figures)


def mico(
    world: WorldArg,
    accuracy: AccuracyArg,
    figures: FigureArg,
    policy: PolicyArg = None,
    output: OutputArg = None,
) -> None:
    """MICo: two states follow a policy independently, so that one may be far from itself.

    Args:
        policy: `own` (the world's), `optimal`, or a .npy or .txt file with one action a state
        output: save the table: `bisimetric show`, `bisimetric explain` and NumPy read it

    Examples:
        bisimetric exact mico mirrored-rooms-policy -o d.npz
        bisimetric exact mico duplicated-grid --policy optimal --heatmap table.png
    """
    mdp = load_world(world, output, figures)
    actions, called = resolve_policy(mdp, policy)
    from bisimetric import exact

    distance = exact.mico(mdp, actions, tol=accuracy.tol, dtype=accuracy.dtype)
    write_result(distance, world, output, figures, policy=called)


def _validate_device(
    device: str, pairs: tuple[tuple[str, str], ...], samples: int | None = None
) -> None:
    """Refuses a GPU for what is not a whole table, before anything is read."""
    if device == "gpu" and (pairs or samples is not None):
        other = "--pairs" if pairs else "--samples"
        raise InputError(f"--device gpu is for whole tables; leave {other} or it out.")
