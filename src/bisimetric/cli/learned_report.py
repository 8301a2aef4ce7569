"""What the commands say of networks: how they learned, how good they are, and what is in a file."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bisimetric.cli.data_report import format_data, is_deterministic
from bisimetric.cli.network_report import (
    compute_required_updates,
    format_algorithm,
    format_horizon,
    format_network,
    format_optimiser,
)
from bisimetric.cli.report import TITLES, format_count, format_largest, format_mdp
from bisimetric.mdp import MDP

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bisimetric.cli.data_report import Reference
    from bisimetric.cli.learned_options import LearnedOutputOptions
    from bisimetric.distance import Distance
    from bisimetric.learned import LearnedDistance, Quality
    from bisimetric.learned.losses import LearnedKind
    from bisimetric.transitions import Transitions


@dataclasses.dataclass(frozen=True, eq=False)
class TrainingSummary:
    """What a network was taught from, and for how long.

    Attributes:
        source: the world or the data.
        policy, called: the actions of the policy, and how to call it; None for d~.
        torn: whether steps are known to have several outcomes.
        truth: the exact distance, where it is known.
        steps: how many were asked for.
        before: how many of them a resumed run had taken.
        noise: of the states' features.
    """

    source: MDP | Transitions
    policy: NDArray[Any] | None
    policy_name: str | None
    stochastic: bool
    reference: Reference | None
    updates: int
    resumed_updates: int
    noise: float

    def evaluate(self, distance: LearnedDistance) -> Quality:
        """That of a network on what it was taught from."""
        from bisimetric.learned import source_from_mdp, source_from_transitions

        if isinstance(self.source, MDP):
            shaken = {"noise": self.noise, "most": 3 * self.noise} if self.noise else {}
            states = source_from_mdp(
                distance.kind, self.source, self.policy, scaling=distance.scaling, **shaken
            )
            return distance.quality(states)
        return distance.quality(
            source_from_transitions(
                distance.kind, self.source, self.policy, scaling=distance.scaling
            )
        )


def describe_learned(
    learned: LearnedDistance, distance: Distance | None, training: TrainingSummary
) -> Iterator[str]:
    """The source, the network, how it learned, and how far it is from what it should be."""
    from bisimetric.learned.learned_distance import EVALUATION_BATCH

    made, source = learned.metadata, training.source
    if isinstance(source, MDP):
        yield f"world      {made['world']}: {format_mdp(source)}"
    else:
        yield f"data       {made['world']}: {format_data(source)}, discount {learned.discount:g}"
    yield f"distance   {TITLES[learned.kind]}: an approximation, nothing is proven"
    if training.policy_name is not None:
        yield f"policy     {training.policy_name}"
    if training.stochastic:
        yield (
            "branches   some steps have several outcomes: the loss averages over pairs of them, "
            "and distances come out too large"
        )
    yield f"recipe     {format_algorithm(made)}"
    yield f"network    {format_network(learned.scaling.num_features, made)}"
    yield from _describe_updates(learned, training)
    yield f"horizon    {format_horizon(made, learned.discount)}"
    yield format_loss(learned.history)
    yield from _describe_reference(learned, training)
    quality = training.evaluate(learned)
    if distance is not None:
        yield format_largest(distance)
    else:
        yield f"largest    {quality.max_distance:.3g}, among the pairs of {EVALUATION_BATCH} drawn steps"
    yield from describe_quality(learned.kind, quality, EVALUATION_BATCH, made.get("form", "pairs"))
    if quality.max_distance == 0 and learned.history["loss"][-1] > 0:
        yield (
            "dead       psi is 0 for all pairs, where a ReLU has no slope; try another --key, a "
            "smaller --learning-rate, or more --hidden units"
        )


def _describe_updates(learned: LearnedDistance, training: TrainingSummary) -> Iterator[str]:
    made = learned.metadata
    taken, seconds = made["steps"] - training.resumed_updates, made["seconds"]
    speed = f"{seconds:.3g} s, {taken / max(seconds, 1e-9):,.0f} a second"
    run = (
        f"{taken:,} of them in this run, in {speed}" if training.resumed_updates else f"in {speed}"
    )
    early = ", stopped early: the loss fell no more" if made["steps"] < training.updates else ""
    yield f"steps      {made['steps']:,}, {run}{early}"
    yield f"device     {made['device']}"


def format_loss(history: Mapping[str, NDArray[Any]]) -> str:
    """The last loss of a history, and over how many steps it is the mean."""
    steps = history["step"]
    over = int(steps[-1] - (steps[-2] if len(steps) > 1 else 0))
    last = float(np.mean(history["loss"][..., -1]))
    return f"loss       {last:.3g}, the mean of the last {over:,} steps"


def _describe_reference(learned: LearnedDistance, training: TrainingSummary) -> Iterator[str]:
    truth, source = training.reference, training.source
    if truth is None or learned.points is None:
        return
    import jax.numpy as jnp

    from bisimetric.learned.evaluation import compute_errors

    values, exact, among = learned.values, truth.distance.values, ""
    if not isinstance(source, MDP):
        # Of the others nobody knows what they do.
        left = np.unique(np.asarray(source.states))
        cells = np.ix_(left, left)
        values, exact = values[cells], exact[cells]
        among = (
            ""
            if truth.complete
            else f", among the {format_count(len(left), 'state')} that were left"
        )
    far = {
        name: float(each)
        for name, each in compute_errors(jnp.asarray(exact), jnp.asarray(values)).items()
    }
    yield (
        f"truth      largest error {far['error']:.3g} where the exact distances reach "
        f"{float(exact.max()):.3g}{among}"
    )
    yield f"           normalised {far['normalised']:.3g}, correlation {far['correlation']:.3g}"


def describe_quality(
    kind: LearnedKind, quality: Quality, num_transitions: int, form: str
) -> Iterator[str]:
    """How far a network is from being a distance, and from its equation, in words.

    Some networks are symmetric, or metrics, whatever their weights, and the words say so.
    """
    metric = ", by construction" if form == "metric" else ""
    symmetric = ", by construction" if form == "free" else metric
    wanted = metric or ("" if kind == "mico" else ", and should be 0")
    rounded = metric and f"{metric} but for rounding"
    yield f"judged     on all pairs of {num_transitions} drawn steps, where psi is the network:"
    far = f"{quality.symmetry:.3g} at most{symmetric}"
    yield f"  symmetry   psi(x, y) and psi(y, x) differ by {far}"
    yield f"  identity   psi(x, x) is {quality.identity:.3g} at most{wanted}"
    yield f"  triangle   a way round is shorter by {quality.triangle:.3g} at most{rounded}"
    yield f"  residual   psi is off its equation by {quality.residual:.3g} on average"


def suggest_next(
    learned: LearnedDistance,
    distance: Distance | None,
    outputs: LearnedOutputOptions,
    program: str,
    solve: Sequence[str],
) -> Iterator[str]:
    """What to try after a network has learned; `solve` finds the exact distance, where it can."""
    wanted = compute_required_updates(learned.metadata, learned.discount)
    if wanted is not None:
        yield f"next: --steps {wanted:,} or more, or a smaller --period, for the whole horizon"
    if outputs.output is None:
        yield "next: add -o d.safetensors to keep the network"
    else:
        yield f'next: in Python, d = bisimetric.learned.Learned.load("{outputs.output}"); d(x, y)'
    if distance is not None and outputs.matrix is not None:
        from bisimetric.cli.report import find_farthest_pair

        s, t = map(distance.mdp.state_name, find_farthest_pair(distance))
        yield "next: " + shlex.join([program, "explain", str(outputs.matrix), s, t])
    elif distance is not None:
        yield "next: add --table d.npz for `bisimetric explain` and `bisimetric show`"
    if solve:
        yield f"next: {shlex.join(solve)}, which is exact"


def format_title(kind: str, discount: float, metadata: Mapping[str, Any]) -> str:
    """What a picture of a training shows.

    >>> title("on_policy", 0.99, {"world": "data/cart.npz", "keys": [3]})
    'Learning d^pi, the on-policy distance, from cart.npz: discount 0.99, key 3'
    """
    source = f", from {Path(metadata['world']).name}" if "world" in metadata else ""
    keys = metadata["keys"]
    seeds = f"key {keys[0]}" if len(keys) == 1 else format_count(len(keys), "key")
    return f"Learning {TITLES[kind]}{source}: discount {discount:g}, {seeds}"


@dataclasses.dataclass(frozen=True, eq=False)
class LearnedFile:
    """What a file of `learned` holds: a distance, or a run to go on with.

    Attributes:
        what: in words.
        made: how it was made.
        features: of a state, those of the end included.
        history: what was measured on the way.
    """

    path: Path
    description: str
    metadata: dict[str, Any]
    num_features: int
    history: dict[str, NDArray[np.float64]]

    @property
    def title(self) -> str:
        return format_title(self.metadata["kind"], self.metadata["discount"], self.metadata)


def read_learned_file(path: Path, label: Mapping[str, Any]) -> LearnedFile:
    """A file of `learned` by its label."""
    from bisimetric.learned import files
    from bisimetric.learned.learned_distance import LearnedDistance

    if label["format"] == files.RUN_FORMAT:
        tensors, about = files.read_tensors(path, files.RUN_FORMAT, "learning run")
        made = {**about, "steps": files.read_update_count(path, tensors)}
        what = "a training run to go on with"
        features = about.get("features")
        if features is None:
            weights = tensors.get(".parameters[0]['weights']")
            features = 0 if weights is None or weights.ndim < 2 else weights.shape[1] // 2
        history = files.extract_history(tensors)
    else:
        found = LearnedDistance.load(path)
        made, what = found.metadata, "a distance that a network learned"
        features = found.scaling.num_features
        history = found.history
    return LearnedFile(path, what, made, features, history)


def describe_file(file: LearnedFile) -> Iterator[str]:
    """What a file of `learned` holds, in words."""
    made, history = file.metadata, file.history
    yield f"file       {file.path}: {file.description}"
    yield f"distance   {TITLES[made['kind']]}: an approximation, nothing is proven"
    if "world" in made:
        yield f"from       {made['world']}" + (f": {made['data']}" if "data" in made else "")
    yield f"discount   {made['discount']:g}"
    yield f"recipe     {format_algorithm(made)}"
    yield f"network    {format_network(file.num_features, made)}"
    yield f"steps      {made['steps']:,}"
    yield f"horizon    {format_horizon(made, made['discount'])}"
    if len(history.get("step", ())):
        yield format_loss(history)
    if "error" in history:
        far = [float(np.mean(history[name][..., -1])) for name in ("error", "normalised")]
        yield f"truth      largest error {far[0]:.3g}, normalised {far[1]:.3g}, at the end"
    yield f"learning   {format_optimiser(made)}"
    for key in ("device", "bisimetric", "jax"):
        if key in made:
            yield f"{key:<10} {made[key]}"


def is_stochastic(kind: LearnedKind, data: Transitions, policy: NDArray[Any] | None) -> bool:
    """Whether two steps of one state, with the same action for d~, are known to have differed.

    For MICo that is as it should be.
    """
    if data.states is None or kind == "mico":
        return False
    if kind == "on_policy":
        if policy is not None:
            data = data[np.asarray(policy)[data.states] == data.actions]
        data = dataclasses.replace(
            data, actions=np.zeros(len(data), np.int64), num_actions=1, action_names=None
        )
    return not is_deterministic(data)
