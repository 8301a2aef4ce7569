"""Reports about transitions and sampled distances, and the exact distance as their reference."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bisimetric._text import pluralise
from bisimetric.cli.options import append_terminal_action
from bisimetric.cli.report import (
    Fact,
    count_coverage,
    describe_distance,
    describe_error,
    describe_kind,
    describe_largest,
    describe_mdp,
    describe_pair_bounds,
    describe_seconds,
    emit_values,
)
from bisimetric.distance import Distance, DistanceBounds, Kind
from bisimetric.errors import InputError, NotConverged
from bisimetric.mdp import MDP
from bisimetric.transitions import Transitions

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_REFERENCE_STATES = 512
"""The exact distances of so many states take about a second."""

REFERENCE_TOL = 1e-9
STOP_REASONS = {
    "steps": "the requested number",
    "seconds": "the time limit",
    "tol": "tol was reached",
}


class Reference(NamedTuple):
    """The exact distance that samples converge to.

    Attributes:
        distance: the exact distance.
        complete: whether transitions leave from every state, so that all of it can be sampled.
    """

    distance: Distance
    complete: bool

    def compute_largest_error(self, distance: Distance) -> tuple[float, int]:
        """Return the largest error of the determined entries, and their number of state pairs."""
        coverage = distance.coverage
        gaps = np.abs(self.distance.values - distance.values)
        if coverage is None:
            return float(gaps.max()), gaps.size
        return float(gaps[coverage.determined].max()), coverage.num_proven


def compute_reference(
    kind: Kind, source: MDP | Transitions, policy: NDArray[Any] | None, discount: float | None
) -> Reference | None:
    """Return the exact distance of the same kind; None where it is expensive or undefined.

    For transitions it is that of their empirical MDP: for d~ where all actions were taken, for
    d^pi under the policy, or under the recorded actions where there is none.
    """
    from bisimetric import exact

    if (source.num_states or MAX_REFERENCE_STATES + 1) > MAX_REFERENCE_STATES:
        return None
    try:
        mdp, complete = _build_model(kind, source, discount)
        if kind == "bisimulation":
            if not mdp.is_deterministic:
                return None
            return Reference(exact.bisimulation(mdp, tol=REFERENCE_TOL), complete)
        if policy is None:
            actions = np.asarray(mdp.action_mask.argmax(axis=1))
        else:
            actions = append_terminal_action(mdp, policy)
        deterministic = mdp.apply_policy(actions).is_deterministic
        if kind in ("mico", "reduced_mico") and isinstance(source, MDP):
            compute = exact.mico if kind == "mico" else exact.reduced_mico
            return Reference(compute(mdp, actions, tol=REFERENCE_TOL), complete)
        if not deterministic or _terminates_off_policy(source, policy):
            return None
        return Reference(exact.on_policy(mdp, actions, tol=REFERENCE_TOL), complete)
    except NotConverged as error:
        partial = error.partial
        return Reference(partial, complete) if isinstance(partial, Distance) else None
    except InputError:
        # `sampled` and `learned` report what is wrong with the source.
        return None


def _build_model(kind: Kind, source: MDP | Transitions, discount: float | None) -> tuple[MDP, bool]:
    if isinstance(source, MDP):
        return source, True
    given = {} if discount is None else {"discount": discount}
    mdp = source.to_mdp(unseen="raise" if kind == "bisimulation" else "missing", **given)
    return mdp, len(np.unique(np.asarray(source.states))) == source.num_states


def _terminates_off_policy(source: MDP | Transitions, policy: NDArray[Any] | None) -> bool:
    """Whether episodes terminate in the data, but none of them while following the policy.

    The matrix of the policy has no terminal state then.
    """
    if isinstance(source, MDP) or policy is None:
        return False
    states = np.asarray(source.states)
    follows = source.actions == np.asarray(policy)[states]
    return source.terminal_state is not None and not source.terminated[follows].any()


def describe_source(
    name: object, source: MDP | Transitions, mdp: MDP | None, discount: float
) -> Fact:
    """Return the name and the size of the MDP or of the transitions."""
    if isinstance(source, MDP):
        return describe_mdp("world", name, mdp or source)
    value = {**count_data(source), "name": str(name), "discount": discount}
    return Fact("data", f"{name}: {format_data(source)}, discount {discount:g}", value)


def describe_sampled(
    distance: Distance,
    source: MDP | Transitions,
    reference: Reference | None,
    checkpoint: Path | None,
) -> Iterator[Fact | str]:
    """Yield the source, the sampler, the distances and what is known of their errors."""
    mdp, metadata, coverage = distance.mdp, distance.metadata, distance.coverage
    yield describe_source(metadata["world"], source, mdp, mdp.discount)
    yield describe_kind(distance.kind)
    if "policy" in metadata:
        yield Fact("policy", str(metadata["policy"]))
    seed = metadata.get("seed", metadata.get("key"))
    sampler = metadata["sampler"]
    yield Fact("sampler", f"{sampler}, seed {seed}", {"name": sampler, "seed": seed})
    steps, reason = metadata["steps"], metadata["stopped"]
    yield Fact("steps", f"{steps:,}, {STOP_REASONS.get(reason, reason)}", steps)
    emit_values(stopped=reason)
    yield describe_largest(distance)
    yield describe_error(distance)
    if coverage is not None and not (coverage.complete and coverage.visited.all()):
        # The line of the error holds what is proven, and suggestions come last.
        shown = ("proven", "next")
        yield from (line for line in coverage.format_lines(mdp) if not line.startswith(shown))
        emit_values(coverage=count_coverage(coverage))
    if reference is not None:
        yield from _describe_reference(distance, reference)
    yield describe_seconds(metadata["seconds"])
    if checkpoint is not None:
        yield Fact("checkpoint", f"{checkpoint}: --resume continues from it", str(checkpoint))


def describe_recorded(distance: Distance) -> Iterator[Fact | str]:
    """Yield the distances between recorded steps, and how many steps were left out."""
    yield from describe_distance(distance)
    recorded, left_out = distance.metadata["recorded_steps"], distance.metadata["left_out"]
    text = f"{recorded - left_out:,} of {recorded:,} recorded"
    if left_out:
        text += f"; {left_out:,} have too short a recorded future for tol"
    yield Fact("steps", text, {"recorded": recorded, "left_out": left_out})


def describe_confidence(bounds: DistanceBounds, pairs: Sequence[tuple[str, str]]) -> Iterator[Fact]:
    """Yield how wide confidence bounds are, what they assume, and those of some pairs."""
    mdp, metadata = bounds.mdp, bounds.metadata
    yield describe_mdp("data", metadata["world"], mdp)
    yield describe_kind(bounds.kind)
    if "policy" in metadata:
        yield Fact("policy", str(metadata["policy"]))
    least, median, most = metadata["samples"]
    text = f"{least:,} to {most:,} per state and action, median {median:,g}"
    if metadata["without"]:
        text += f"; {metadata['without']:,} have none"
    value = {"least": least, "median": median, "most": most, "without": metadata["without"]}
    yield Fact("samples", text, value)
    assumed = {
        "sampling": metadata["sampling"],
        "support": metadata["support"],
        "rewards": metadata["rewards"],
        "reward_range": metadata["reward_range"],
        "num_states": metadata["num_states"],
    }
    low, high = metadata["reward_range"]
    text = (
        f"{metadata['rewards']} rewards from {low:g} to {high:g}, {metadata['sampling']} sampling"
    )
    successors = (
        f"{metadata['num_states']:,} states" if metadata["support"] == "states" else "those"
    )
    observed = "" if metadata["support"] == "states" else " observed"
    yield Fact("assumed", f"{text}, successors among {successors}{observed}", assumed)
    diameter = (high - low) / (1 - mdp.discount)
    mean = metadata["mean_width"]
    text = f"mean {mean:.4g} for visited states, of at most {diameter:.4g}"
    yield Fact("width", text, {"mean": mean, "diameter": diameter})
    text = f"{metadata['vacuous']:.0%} of the pairs have the bounds 0 and {diameter:.4g}"
    yield Fact("vacuous", text, metadata["vacuous"])
    yield Fact(
        "confidence", f"{bounds.confidence:g} that the bounds of all pairs hold", bounds.confidence
    )
    yield from describe_pair_bounds(bounds, pairs)
    yield describe_seconds(metadata["seconds"])


def _describe_reference(distance: Distance, reference: Reference) -> Iterator[Fact]:
    error, pairs = reference.compute_largest_error(distance)
    if not pairs:
        return
    states, coverage = distance.mdp.num_states, distance.coverage
    total = states * (states - 1) // 2 if coverage is None else coverage.num_state_pairs
    among = "" if pairs == total else f", among {pairs:,} of {pluralise(total, 'pair')}"
    text = f"largest difference from the exact distance: {error:.2g}{among}"
    yield Fact("reference", text, {"error": error, "pairs": pairs})


def suggest_for_data(
    distance: Distance, source: Transitions, command: Sequence[str]
) -> Iterator[Fact]:
    """Yield what to try where the data do not determine all distances.

    `command` solves the empirical MDP.
    """
    coverage = distance.coverage
    if coverage is None or coverage.complete:
        return
    if has_unseen_actions(source):
        words = shlex.join([*command, "--set", "unseen=missing"])
        yield Fact("next", f"collect more; or {words}")
    else:
        yield Fact("next", shlex.join(command))


def has_unseen_actions(data: Transitions) -> bool:
    """Whether an action was never taken in a visited state, so that the empirical MDP lacks it."""
    try:
        data.to_mdp()
    except InputError:
        return True
    return False


def format_data(data: Transitions) -> str:
    """Format the size of the data.

    >>> format_data(Transitions([0], [0], [1.0], [1], [True]))
    '1 step, 1 episode, 2 states, 1 action'
    """
    return repr(data).removeprefix("Transitions(").removesuffix(")")


def count_data(data: Transitions) -> dict[str, int | None]:
    """Return the size of the data.

    >>> count_data(Transitions([0], [0], [1.0], [1], [True]))
    {'steps': 1, 'states': 2, 'actions': 1}
    """
    return {"steps": len(data), "states": data.num_states, "actions": data.num_actions}


def describe_rollout(data: Transitions, output: Path, policy: str) -> Iterator[Fact]:
    """Yield what was collected, and how many states and actions it covers."""
    metadata = data.metadata
    yield Fact("data", f"{output}: {format_data(data)}", {"name": str(output), **count_data(data)})
    seed = metadata["key"] if "key" in metadata else metadata["seed"]
    origin = {"environment": metadata["environment"], "policy": policy, "seed": seed}
    yield Fact("from", f"{metadata['environment']}, policy {policy}, seed {seed}", origin)
    terminated = int(data.terminated.sum())
    truncated = int((data.truncated & ~data.terminated).sum())
    low, high = float(data.rewards.min()), float(data.rewards.max())
    yield Fact("rewards", f"{low:g} to {high:g}", [low, high])
    text = f"{terminated:,} terminated, {truncated:,} truncated"
    yield Fact("episodes", text, {"terminated": terminated, "truncated": truncated})
    if data.states is None or data.next_states is None:
        text = "no ids: distance matrices need them; see state_of of datasets.rollout"
        yield Fact("states", text)
        return
    exited = len(np.unique(data.states))
    visited = len(np.union1d(data.states, data.next_states))
    text = f"{visited:,} of {data.num_states:,} visited, {exited:,} exited"
    yield Fact("states", text, {"visited": visited, "exited": exited, "total": data.num_states})
    if data.num_actions is not None:
        seen, total = count_state_actions(data), exited * data.num_actions
        pairs = pluralise(total, "state-action pair")
        text = f"{seen:,} of {pairs} of the exited states"
        yield Fact("seen", text, {"seen": seen, "total": total})


def suggest_for_rollout(data: Transitions, output: Path, program: str) -> Iterator[Fact]:
    """Yield commands that use the data."""
    if data.states is None or data.num_actions is None:
        return
    single = count_state_actions(data) == len(np.unique(data.states)) and data.num_actions > 1
    kind = "on-policy" if single else "bisimulation"
    if is_deterministic(data):
        yield Fact("next", shlex.join([program, "sampled", kind, str(output), "-o", "d.npz"]))
    missing = ["--set", "unseen=missing"] if has_unseen_actions(data) else []
    yield Fact("next", shlex.join([program, "exact", kind, str(output), *missing, "-o", "d.npz"]))


def count_state_actions(data: Transitions) -> int:
    """Count the distinct pairs of a state and an action."""
    return len(np.unique(_index_state_actions(data)))


def is_deterministic(data: Transitions) -> bool:
    """Whether each state and action led to one successor, with one reward.

    >>> is_deterministic(Transitions([0, 0], [0, 0], [1.0, 2.0], [1, 1], [True, True]))
    False
    """
    _, first, member = np.unique(_index_state_actions(data), return_index=True, return_inverse=True)
    earlier = first[member]
    same = data.successors == data.successors[earlier]
    return bool((same & (data.rewards == data.rewards[earlier])).all())


def _index_state_actions(data: Transitions) -> NDArray[np.int64]:
    """Return one integer for the state and action of each transition."""
    pairs: NDArray[np.int64] = np.asarray(data.states) * int(data.num_actions or 1) + data.actions
    return pairs
