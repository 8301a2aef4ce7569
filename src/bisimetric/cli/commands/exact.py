"""`bisimetric exact`: distances between all states, with a proven error."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated, Literal

from tyro.conf import Positional, arg

from bisimetric.cli.options import (
    AccuracyOptions,
    DataOptions,
    FigureOptions,
    NormalisedTolArg,
    OutputArg,
    PairsArg,
    PolicyArg,
    SeedArg,
    WorldOptions,
    load_world,
    parse_optional_count,
    resolve_data_policy,
    resolve_policy,
    validate_files,
)
from bisimetric.cli.output import print_query, write_result
from bisimetric.errors import InputError

if TYPE_CHECKING:
    from bisimetric.transitions import Transitions

SamplesArg = Annotated[int | None, arg(metavar="N", help_behavior_hint="(default: none, exact)")]
OptionalSeedArg = Annotated[int | None, arg(metavar="K", help_behavior_hint="(default: 0)")]
ExactDeviceArg = Annotated[Literal["cpu", "gpu"], arg(metavar="{cpu,gpu}")]
RecordedTolArg = Annotated[
    float | None, arg(metavar="T", help_behavior_hint="(default: none, all steps)")
]
RewardRangeArg = Annotated[
    tuple[float, float] | None,
    arg(metavar="LOW HIGH", help_behavior_hint="(needed unless all episodes terminated)"),
]
AllRewardsArg = Annotated[tuple[float, float], arg(metavar="LOW HIGH")]
KindArg = Annotated[
    Literal["bisimulation", "on-policy", "lax"], arg(metavar="{bisimulation,on-policy,lax}")
]
UpdatesArg = Annotated[str | None, arg(metavar="N", help_behavior_hint="(default: no limit)")]
BoundsTolArg = Annotated[
    float | None, arg(metavar="T", help_behavior_hint="(default: 1e-6 without --updates)")
]
NumStatesArg = Annotated[int | None, arg(metavar="N", help_behavior_hint="(default: recorded ids)")]


@dataclasses.dataclass(frozen=True)
class RecordingOptions(DataOptions):
    """The recorded steps."""

    world: Annotated[Positional[str], arg(metavar="DATA")]
    """a .npz file of transitions, as `bisimetric rollout` writes them"""
    discount: Annotated[
        float | None, arg(aliases=["--gamma"], metavar="G", help_behavior_hint="(default: 0.99)")
    ] = None
    """discount factor, at least 0 and below 1"""


def bisimulation(
    world: WorldOptions,
    accuracy: AccuracyOptions,
    figures: FigureOptions,
    output: OutputArg = None,
    pairs: PairsArg = (),
    samples: SamplesArg = None,
    seed: OptionalSeedArg = None,
    device: ExactDeviceArg = "cpu",
) -> None:
    """d~: both states take the same action, and the maximum over actions is their distance.

    Args:
        output: save the distances: `bisimetric show`, `bisimetric explain` and NumPy read them
        pairs: compute the distance of two states only, without a matrix; may be repeated
        samples: estimate the distances from N sampled successors per state and action
        seed: seed of --samples
        device: the device to compute on; gpu: an NVIDIA GPU

    Examples:
        bisimetric exact bisimulation mirrored-rooms -o d.npz
        bisimetric exact bisimulation mirrored-rooms --from 4,3 --plot-map map.png
        bisimetric exact bisimulation open-grid --set rows=20 columns=30 --discount 0.9
        bisimetric exact bisimulation my-grid.txt --dtype float32 --tol 1e-3
        bisimetric exact bisimulation my-grid.txt --discount 0.9999 --normalised-tol 1e-6
        bisimetric exact bisimulation mirrored-rooms --pairs 1,5 5,5 --pairs 1,1 5,1 --json
        bisimetric exact bisimulation model.npz --discount 0.9 --samples 50 --seed 1
        bisimetric exact bisimulation large.npz --dtype float32 --tol 1e-3 --device gpu -o d.npz
    """
    if seed is not None and samples is None:
        raise InputError(f"--seed {seed} is for --samples; give both or none.")
    if pairs and samples is not None:
        raise InputError("--pairs gives proven distances; leave --samples out.")
    _validate_device(device, pairs, samples)
    mdp = load_world(world, output, figures, pairs)
    from bisimetric import exact

    if pairs:
        print_query(mdp, exact.query(mdp, pairs, **accuracy.tolerance), world)
        return
    distance = exact.bisimulation(
        mdp,
        **accuracy.tolerance,
        dtype=accuracy.dtype,
        samples=samples,
        seed=seed or 0,
        device=device,
    )
    write_result(distance, world, output, figures)


def on_policy(
    world: WorldOptions,
    accuracy: AccuracyOptions,
    figures: FigureOptions,
    policy: PolicyArg = None,
    output: OutputArg = None,
    pairs: PairsArg = (),
    device: ExactDeviceArg = "cpu",
) -> None:
    """d^pi: both states follow one policy, and their rewards are compared.

    Args:
        policy: `own` (the world's), `optimal`, or a .npy or .txt file with one action per state
        output: save the distances: `bisimetric show`, `bisimetric explain` and NumPy read them
        pairs: compute the distance of two states only, without a matrix; may be repeated
        device: the device to compute on; gpu: an NVIDIA GPU

    Examples:
        bisimetric exact on-policy mirrored-rooms-policy -o d.npz
        bisimetric exact on-policy mirrored-rooms --policy optimal --plot-map map.png
        bisimetric exact on-policy my-grid.txt --policy actions.txt
        bisimetric exact on-policy mirrored-rooms-policy --pairs 1,5 5,5
    """
    _validate_device(device, pairs)
    mdp = load_world(world, output, figures, pairs)
    actions, name = resolve_policy(mdp, policy)
    from bisimetric import exact

    if pairs:
        query = exact.query(mdp, pairs, kind="on_policy", policy=actions, **accuracy.tolerance)
        print_query(mdp, query, world, policy=name)
        return
    distance = exact.on_policy(
        mdp, actions, **accuracy.tolerance, dtype=accuracy.dtype, device=device
    )
    write_result(distance, world, output, figures, policy=name)


def lax(
    world: WorldOptions,
    accuracy: AccuracyOptions,
    figures: FigureOptions,
    output: OutputArg = None,
    pairs: PairsArg = (),
    device: ExactDeviceArg = "cpu",
) -> None:
    """d_lax: each action of a state is matched by the best action of the other.

    Args:
        output: save the distances: `bisimetric show`, `bisimetric explain` and NumPy read them
        pairs: compute the distance of two states only, without a matrix; may be repeated
        device: the device to compute on; gpu: an NVIDIA GPU

    Examples:
        bisimetric exact lax mirrored-rooms -o d.npz --plot-heatmap heatmap.png
        bisimetric exact lax pessimism --discount 0.5
        bisimetric exact lax mirrored-rooms --pairs 1,5 5,5
        bisimetric exact lax large.npz --device gpu -o d.npz
    """
    _validate_device(device, pairs)
    mdp = load_world(world, output, figures, pairs)
    from bisimetric import exact

    if pairs:
        print_query(mdp, exact.query(mdp, pairs, kind="lax", **accuracy.tolerance), world)
        return
    distance = exact.lax(mdp, **accuracy.tolerance, dtype=accuracy.dtype, device=device)
    write_result(distance, world, output, figures)


def asynchronous(
    world: WorldOptions,
    kind: KindArg = "bisimulation",
    policy: PolicyArg = None,
    schedule: Literal["widest", "uniform", "round-robin"] = "widest",
    updates: UpdatesArg = None,
    tol: BoundsTolArg = None,
    seed: SeedArg = 0,
    pairs: PairsArg = (),
    output: OutputArg = None,
) -> None:
    """Bounds on all distances by updates of some pairs at a time, proven whenever they stop.

    Args:
        kind: the distance to bound
        policy: on-policy: `own` (the world's), `optimal`, or a .npy or .txt file of actions
        schedule: which pairs to update: those with the widest bounds, random ones, or all in turn
        updates: stop after this many updates of a pair; 2000000, 2_000_000, 2e6 or 2M
        tol: stop when the middle of all bounds has an error of at most this
        seed: seed of the random pairs
        pairs: print the bounds of two states; may be repeated
        output: save the bounds; DistanceBounds.load reads them

    Examples:
        bisimetric exact asynchronous mirrored-rooms --updates 10k --pairs 1,5 5,5
        bisimetric exact asynchronous mirrored-rooms --kind lax --tol 1e-3 -o bounds.npz
    """
    mdp = load_world(world, output, pairs=pairs)
    actions, name = resolve_policy(mdp, policy) if kind == "on-policy" else (None, "")
    if policy is not None and actions is None:
        raise InputError("--policy is for --kind on-policy; leave it out.")
    from bisimetric import exact
    from bisimetric.cli import report

    bounds = exact.asynchronous(
        mdp,
        kind="on_policy" if kind == "on-policy" else kind,
        policy=actions,
        schedule="round_robin" if schedule == "round-robin" else schedule,
        updates=parse_optional_count("--updates", updates),
        tol=tol,
        seed=seed,
    )
    bounds.metadata["world"] = world.world
    if actions is not None:
        bounds.metadata["policy"] = name
    if output is not None:
        bounds.save(output)
    report.emit(report.describe_bounds(bounds, pairs), report.describe_saved([output]))


def mico(
    world: WorldOptions,
    accuracy: AccuracyOptions,
    figures: FigureOptions,
    policy: PolicyArg = None,
    output: OutputArg = None,
) -> None:
    """MICo: both states follow a policy independently, so that self-distances may be nonzero.

    Args:
        policy: `own` (the world's), `optimal`, or a .npy or .txt file with one action per state
        output: save the distances: `bisimetric show`, `bisimetric explain` and NumPy read them

    Examples:
        bisimetric exact mico mirrored-rooms-policy -o d.npz
        bisimetric exact mico duplicated-grid --policy optimal --plot-heatmap heatmap.png
    """
    mdp = load_world(world, output, figures)
    actions, name = resolve_policy(mdp, policy)
    from bisimetric import exact

    distance = exact.mico(mdp, actions, **accuracy.tolerance, dtype=accuracy.dtype)
    write_result(distance, world, output, figures, policy=name)


def recorded(
    data: RecordingOptions,
    figures: FigureOptions,
    tol: RecordedTolArg = None,
    normalised_tol: NormalisedTolArg = None,
    reward_range: RewardRangeArg = None,
    dtype: Literal["float64", "float32"] = "float64",
    output: OutputArg = None,
) -> None:
    """d^pi between recorded steps of a deterministic policy, from their recorded futures.

    Args:
        tol: proven bound on the error; steps with too short a recorded future are left out
        normalised_tol: in place of --tol: bound on the error of (1 - discount) * d
        reward_range: range of all rewards, with 0 if an episode can terminate
        dtype: type of the matrix entries; float32 takes half the memory
        output: save the distances: `bisimetric show`, `bisimetric explain` and NumPy read them

    Examples:
        bisimetric exact recorded data.npz --reward-range 0 1 -o d.npz
        bisimetric exact recorded data.npz --reward-range 0 1 --tol 1e-3 --discount 0.9
        bisimetric exact recorded data.npz --dtype float32 --plot-heatmap heatmap.png
    """
    validate_files(output, figures.paths, inputs=[data.world])
    from bisimetric import exact
    from bisimetric.cli.data_report import describe_recorded
    from bisimetric.mdp import DEFAULT_DISCOUNT

    transitions = _read_transitions(data, "exact on-policy` computes d^pi of a world")
    distance = exact.recorded(
        transitions,
        discount=DEFAULT_DISCOUNT if data.discount is None else data.discount,
        tol=tol,
        normalised_tol=normalised_tol,
        reward_range=reward_range,
        dtype=dtype,
    )
    write_result(distance, data, output, figures, describe=describe_recorded)


def confidence_bounds(
    data: RecordingOptions,
    reward_range: AllRewardsArg,
    kind: KindArg = "bisimulation",
    policy: PolicyArg = None,
    confidence: float = 0.95,
    sampling: Literal["adaptive", "fixed"] = "adaptive",
    support: Literal["states", "observed"] = "states",
    rewards: Literal["random", "deterministic"] = "random",
    num_states: NumStatesArg = None,
    pairs: PairsArg = (),
    output: OutputArg = None,
) -> None:
    """Bounds on the distances of the environment that transitions were recorded in.

    With probability --confidence over the data, the bounds of all pairs hold at once.

    Args:
        reward_range: range of all rewards of the environment; 0 is added if an episode terminated
        kind: the distance to bound
        policy: on-policy: a .npy or .txt file with one action per state, chosen without the data
        confidence: probability that all bounds hold
        sampling: fixed: the number of samples per state and action was chosen in advance
        support: observed: only observed successors are possible, which data cannot show
        rewards: deterministic: the reward of a state and action is a constant
        num_states: number of states of the environment, if some were not recorded
        pairs: print the bounds of two states; may be repeated
        output: save the bounds; DistanceBounds.load reads them

    Examples:
        bisimetric exact confidence-bounds data.npz --reward-range 0 1 --discount 0.5 -o bounds.npz
        bisimetric exact confidence-bounds data.npz --reward-range 0 1 --pairs 0 1 --confidence 0.9
        bisimetric exact confidence-bounds data.npz --reward-range 0 1 --kind on-policy
    """
    validate_files(output, inputs=[data.world])
    from bisimetric import exact
    from bisimetric.cli import report
    from bisimetric.cli.data_report import describe_confidence
    from bisimetric.mdp import DEFAULT_DISCOUNT

    transitions = _read_transitions(data, "exact bisimulation` computes d~ of a world")
    actions, name = resolve_data_policy(policy)
    bounds = exact.confidence_bounds(
        transitions,
        reward_range=reward_range,
        kind="on_policy" if kind == "on-policy" else kind,
        policy=actions,
        confidence=confidence,
        discount=DEFAULT_DISCOUNT if data.discount is None else data.discount,
        sampling=sampling,
        support=support,
        rewards=rewards,
        num_states=num_states,
    )
    if kind == "on-policy":
        bounds.metadata["policy"] = name
    bounds.metadata["world"] = data.world
    facts = list(describe_confidence(bounds, pairs))
    if output is not None:
        bounds.save(output)
    report.emit(facts, report.describe_saved([output]))


def reduced_mico(
    world: WorldOptions,
    accuracy: AccuracyOptions,
    figures: FigureOptions,
    policy: PolicyArg = None,
    output: OutputArg = None,
) -> None:
    """Reduced MICo: MICo less the mean of the self-distances; its square root is a metric.

    Args:
        policy: `own` (the world's), `optimal`, or a .npy or .txt file with one action per state
        output: save the distances: `bisimetric show` and NumPy read them

    Examples:
        bisimetric exact reduced-mico mirrored-rooms-policy -o d.npz
        bisimetric exact reduced-mico duplicated-grid --policy optimal --plot-heatmap heatmap.png
    """
    mdp = load_world(world, output, figures)
    actions, name = resolve_policy(mdp, policy)
    from bisimetric import exact

    distance = exact.reduced_mico(mdp, actions, **accuracy.tolerance, dtype=accuracy.dtype)
    write_result(distance, world, output, figures, policy=name)


def undiscounted(
    world: WorldOptions,
    accuracy: AccuracyOptions,
    figures: FigureOptions,
    output: OutputArg = None,
) -> None:
    """The undiscounted distance of a labelled MDP: the probability that labels ever differ.

    Args:
        output: save the distances: `bisimetric show` and NumPy read them

    Examples:
        bisimetric exact undiscounted die.tra --set observe=done,six
        bisimetric exact undiscounted die.drn --set observe=six --tol 1e-9 -o d.npz
    """
    mdp = load_world(world, output, figures)
    from bisimetric import exact

    distance = exact.undiscounted(mdp, tol=accuracy.tol, dtype=accuracy.dtype)
    write_result(distance, world, output, figures)


def _read_transitions(data: RecordingOptions, alternative: str) -> Transitions:
    """Read a file of transitions; `alternative` is what a command does for other sources."""
    from bisimetric.transitions import Transitions
    from bisimetric.transitions.files import is_transitions_file

    transitions = data.read(observations=True) if is_transitions_file(data.world) else None
    if not isinstance(transitions, Transitions):
        raise InputError(
            f"{data.world} is no file of transitions; `bisimetric rollout` writes one, and "
            f"`bisimetric {alternative}."
        )
    return transitions


def _validate_device(
    device: str, pairs: tuple[tuple[str, str], ...], samples: int | None = None
) -> None:
    """Reject a GPU for anything but a whole matrix."""
    if device == "gpu" and (pairs or samples is not None):
        other = "--pairs" if pairs else "--samples"
        raise InputError(f"--device gpu is for whole matrices; leave {other} or it out.")
