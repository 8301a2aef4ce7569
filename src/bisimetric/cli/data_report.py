"""What a sampled table rises to, where that is cheap to know: the exact distance.

What the commands say of experience: of data, and of the tables that come from it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bisimetric import exact
from bisimetric.cli.options import append_terminal_action
from bisimetric.cli.report import TITLES, format_count, format_error, format_largest, format_mdp
from bisimetric.distance import Distance, Kind
from bisimetric.errors import InputError, NotConverged
from bisimetric.mdp import MDP
from bisimetric.transitions import Transitions

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bisimetric.distance import Distance
    from bisimetric.transitions import Transitions


MAX_REFERENCE_STATES = 512
"""A table of so many states, at most, is exact in about a second."""

REFERENCE_TOL = 1e-9


class Reference(NamedTuple):
    """The exact distance; `whole` where no state was left out, so that all of it can be met."""

    distance: Distance
    complete: bool

    def compute_largest_error(self, distance: Distance) -> tuple[float, int]:
        """The largest error of the determined entries, and how many pairs of states those are."""
        coverage = distance.coverage
        gaps = np.abs(self.distance.values - distance.values)
        if coverage is None:
            return float(gaps.max()), gaps.size
        return float(gaps[coverage.determined].max()), coverage.num_proven


def compute_reference(
    kind: Kind, source: MDP | Transitions, policy: NDArray[Any] | None, discount: float | None
) -> Reference | None:
    """The exact distance of the same kind, or None where it is not cheap or not known.

    For data it is that of `Transitions.to_mdp`: for d~ where all actions were seen, for d^pi under
    the policy, or what was done where there is none.
    """
    if (source.num_states or MAX_REFERENCE_STATES + 1) > MAX_REFERENCE_STATES:
        return None
    try:
        mdp, whole = _build_model(kind, source, discount)
        if kind == "bisimulation":
            return (
                Reference(exact.bisimulation(mdp, tol=REFERENCE_TOL), whole)
                if mdp.is_deterministic
                else None
            )
        done = mdp.action_mask.argmax(axis=1)
        followed = np.asarray(done) if policy is None else append_terminal_action(mdp, policy)
        if not mdp.apply_policy(followed).is_deterministic or _terminates_off_policy(
            source, policy
        ):
            return None
        return Reference(exact.on_policy(mdp, followed, tol=REFERENCE_TOL), whole)
    except NotConverged as error:
        partial = error.partial
        return Reference(partial, whole) if isinstance(partial, Distance) else None
    except InputError:
        # What is wrong with the source, `sampled` says itself.
        return None


def _build_model(kind: Kind, source: MDP | Transitions, discount: float | None) -> tuple[MDP, bool]:
    if isinstance(source, MDP):
        return source, True
    given = {} if discount is None else {"discount": discount}
    mdp = source.to_mdp(unseen="raise" if kind == "bisimulation" else "missing", **given)
    return mdp, len(np.unique(np.asarray(source.states))) == source.num_states


def _terminates_off_policy(source: MDP | Transitions, policy: NDArray[Any] | None) -> bool:
    """Whether episodes end in data, but never under the policy, whose table has no end then."""
    if isinstance(source, MDP) or policy is None:
        return False
    states = np.asarray(source.states)
    follows = source.actions == np.asarray(policy)[states]
    return source.terminal_state is not None and not source.terminated[follows].any()


STOP_REASONS = {
    "steps": "as many as were asked for",
    "seconds": "the time was over",
    "tol": "tol was reached",
}


def describe_sampled(
    distance: Distance,
    source: MDP | Transitions,
    reference: Reference | None,
    checkpoint: Path | None,
) -> Iterator[str]:
    """The source, how it was drawn from, the table, what is known of its errors."""
    mdp, made, coverage = distance.mdp, distance.metadata, distance.coverage
    if isinstance(source, MDP):
        yield f"world      {made['world']}: {format_mdp(mdp)}"
    else:
        yield f"data       {made['world']}: {format_data(source)}, discount {mdp.discount:g}"
    yield f"distance   {TITLES[distance.kind]}"
    if "policy" in made:
        yield f"policy     {made['policy']}"
    yield f"sampler    {made['sampler']}, key {made['key']}"
    yield f"steps      {made['steps']:,}, {STOP_REASONS.get(made['stopped'], made['stopped'])}"
    yield format_largest(distance)
    yield format_error(distance)
    if coverage is not None and not (coverage.complete and coverage.visited.all()):
        # What is proven stands in the line of the error, and what to do next comes last.
        said = ("proven", "next")
        yield from (line for line in coverage.format_lines(mdp) if not line.startswith(said))
    if reference is not None:
        yield from _describe_reference(distance, reference)
    yield f"seconds    {made['seconds']:.3g}"
    if checkpoint is not None:
        yield f"kept       {checkpoint}: --resume goes on from there"


def _describe_reference(distance: Distance, reference: Reference) -> Iterator[str]:
    far, pairs = reference.compute_largest_error(distance)
    states = distance.mdp.num_states
    coverage = distance.coverage
    everything = states * (states - 1) // 2 if coverage is None else coverage.num_state_pairs
    among = (
        "" if pairs == everything else f", among {pairs:,} of {format_count(everything, 'pair')}"
    )
    if pairs:
        yield f"truth      largest difference from the exact distance: {far:.2g}{among}"


def suggest_for_data(
    distance: Distance, source: Transitions, command: Iterable[str]
) -> Iterator[str]:
    """What to try where the data did not determine every distance; `command` solves its model."""
    coverage = distance.coverage
    if coverage is None or coverage.complete:
        return
    words = list(command)
    if has_unseen_actions(source):
        yield f"next: collect more; or {shlex.join([*words, '--set', 'unseen=missing'])}"
    else:
        yield f"next: {shlex.join(words)}"


def has_unseen_actions(data: Transitions) -> bool:
    """Whether `Transitions.to_mdp` misses an action in a state that was met."""
    from bisimetric.errors import InputError

    try:
        data.to_mdp()
    except InputError:
        return True
    return False


def format_data(data: Transitions) -> str:
    """How much there is.

    >>> from bisimetric import Transitions
    >>> size(Transitions([0], [0], [1.0], [1], [True]))
    '1 step, 1 episode, 2 states, 1 action'
    """
    return repr(data).removeprefix("Transitions(").removesuffix(")")


def describe_rollout(data: Transitions, output: Path, policy: str) -> Iterator[str]:
    """What was collected, and how much of the states and actions it shows."""
    yield f"data       {output}: {format_data(data)}"
    cut = data.truncated & ~data.terminated
    yield f"from       {data.metadata['environment']}, policy {policy}, key {data.metadata['key']}"
    ended = f"{format_count(int(data.terminated.sum()), 'episode')} ended, {int(cut.sum()):,} cut"
    yield f"rewards    {data.rewards.min():g} to {data.rewards.max():g}; {ended}"
    if data.states is None or data.next_states is None:
        yield "states     no ids: tables of distances need them; see state_of of datasets.rollout"
        return
    left = len(np.unique(data.states))
    met = len(np.union1d(data.states, data.next_states))
    yield f"states     {met:,} of {data.num_states:,} met, {left:,} left"
    if data.num_actions is not None:
        pairs = format_count(left * data.num_actions, "state-action pair")
        yield f"seen       {count_state_actions(data):,} of {pairs} in the states that were left"


def suggest_for_rollout(data: Transitions, output: Path, program: str) -> Iterator[str]:
    """The commands that the data is good for."""
    if data.states is None or data.num_actions is None:
        return
    alone = count_state_actions(data) == len(np.unique(data.states)) and data.num_actions > 1
    kind = "on-policy" if alone else "bisimulation"
    if is_deterministic(data):
        yield "next: " + shlex.join([program, "sampled", kind, str(output), "-o", "d.npz"])
    lacking = ["--set", "unseen=missing"] if has_unseen_actions(data) else []
    yield "next: " + shlex.join([program, "exact", kind, str(output), *lacking, "-o", "d.npz"])


def count_state_actions(data: Transitions) -> int:
    """How many pairs of a state and an action there are."""
    return len(np.unique(_index_state_actions(data)))


def is_deterministic(data: Transitions) -> bool:
    """Whether each state and action led to one state, with one reward.

    >>> from bisimetric import Transitions
    >>> deterministic(Transitions([0, 0], [0, 0], [1.0, 2.0], [1, 1], [True, True]))
    False
    """
    _, first, member = np.unique(_index_state_actions(data), return_index=True, return_inverse=True)
    earlier = first[member]
    same = data.successors == data.successors[earlier]
    return bool((same & (data.rewards == data.rewards[earlier])).all())


def _index_state_actions(data: Transitions) -> NDArray[np.int64]:
    """The state and the action of each step as one number."""
    pairs: NDArray[np.int64] = np.asarray(data.states) * int(data.num_actions or 1) + data.actions
    return pairs


def translate_remedy(message: str, command: Iterable[str]) -> str:
    """What the library advises, said for the command line; `command` solves the whole model.

    >>> said = "give it time, or use exact.lax(transitions.to_mdp())."
    >>> in_shell_words(said, ["bisimetric", "exact", "lax", "data.npz"])
    'give it time, or use `bisimetric exact lax data.npz`.'
    """
    solved = f"`{shlex.join(command)}`"
    call = r"(?:\(transitions\.to_mdp\(\)(?:, policy)?\)|, with Transitions\.to_mdp\(\) for data)?"
    message = re.sub(rf"\bexact\.[a-z_]+\b(?!:){call}", lambda _: solved, message)
    return message.replace("pass policy=", "give --policy").replace("checkpoint=", "--checkpoint")
