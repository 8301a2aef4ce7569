"""What the commands say of experience: of data, and of the tables that come from it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bisimetric.cli.report import TITLES, format_count, format_error, format_largest, format_mdp
from bisimetric.mdp import MDP

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bisimetric.cli.truth import Reference
    from bisimetric.distance import Distance
    from bisimetric.transitions import Transitions

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
        yield f"next: collect more; or {shlex.join([*words, '--set', 'unseen=lacking'])}"
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
    lacking = ["--set", "unseen=lacking"] if has_unseen_actions(data) else []
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
