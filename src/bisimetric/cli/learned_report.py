"""Reports about learned distances: their training, their quality, and the files that hold them."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bisimetric._text import pluralise
from bisimetric.cli.data_report import describe_source
from bisimetric.cli.network_report import (
    describe_algorithm,
    describe_horizon,
    describe_loss,
    describe_model,
    describe_network,
    describe_optimiser,
)
from bisimetric.cli.report import (
    TITLES,
    Fact,
    describe_kind,
    describe_largest,
    emit_values,
    find_farthest_pair,
)
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
    """The source of a learned distance, and the length of its training.

    Attributes:
        source: the MDP or the transitions.
        policy: the actions of the policy; None for d~.
        policy_name: its name.
        reference: the exact distance, where it is known.
        updates: the requested number.
        resumed_updates: those before the run was resumed.
        noise: standard deviation of the noise on the features.
    """

    source: MDP | Transitions
    policy: NDArray[Any] | None
    policy_name: str | None
    reference: Reference | None
    updates: int
    resumed_updates: int
    noise: float

    def evaluate(self, distance: LearnedDistance) -> Quality:
        """Return the quality of a distance on its training source."""
        from bisimetric.learned import source_from_mdp, source_from_transitions

        kind, scaling = distance.kind, distance.scaling
        if isinstance(self.source, MDP):
            noise = {"noise": self.noise, "noise_clip": 3 * self.noise} if self.noise else {}
            source = source_from_mdp(kind, self.source, self.policy, scaling=scaling, **noise)
            return distance.quality(source)
        data = source_from_transitions(kind, self.source, self.policy, scaling=scaling)
        return distance.quality(data)


def describe_learned(
    learned: LearnedDistance, distance: Distance | None, training: TrainingSummary
) -> Iterator[Fact | str]:
    """Yield the source, the network, its training, and its deviation from a distance."""
    from bisimetric.learned.evaluation import EVALUATION_BATCH

    metadata = learned.metadata
    source = training.source
    mdp = source if isinstance(source, MDP) else None
    yield describe_source(metadata["world"], source, mdp, learned.discount)
    yield describe_kind(learned.kind, ": an approximation, nothing is proven")
    if training.policy_name is not None:
        yield Fact("policy", training.policy_name)
    yield describe_algorithm(metadata)
    if (model := describe_model(metadata)) is not None:
        yield model
    yield describe_network(learned.scaling.num_features, metadata)
    yield from _describe_updates(metadata, training)
    yield describe_horizon(metadata, learned.discount)
    yield describe_loss(learned.history)
    yield from _describe_reference(learned, training)
    if distance is not None and "model" in metadata:
        # The samples of a stochastic MDP do not fulfil the equation pair by pair.
        yield describe_largest(distance)
        return
    quality = training.evaluate(learned)
    if distance is not None:
        yield describe_largest(distance)
    else:
        yield describe_sampled_largest(quality)
    form = metadata.get("form", "pairs")
    yield from describe_quality(learned.kind, quality, EVALUATION_BATCH, form)
    if quality.max_distance == 0 and learned.history["loss"][-1] > 0:
        yield Fact(
            "dead",
            "psi is 0 for all pairs, where the gradient of a ReLU is 0; try another --seed, a "
            "smaller --learning-rate, or more --hidden units",
            True,
        )


def describe_sampled_largest(quality: Quality) -> Fact:
    """Return the largest distance among a sample of pairs."""
    from bisimetric.learned.evaluation import EVALUATION_BATCH

    text = f"{quality.max_distance:.3g}, among the pairs of {EVALUATION_BATCH} sampled transitions"
    return Fact("largest", text, {"distance": float(quality.max_distance)})


def _describe_updates(metadata: Mapping[str, Any], training: TrainingSummary) -> Iterator[Fact]:
    total, seconds = metadata["updates"], metadata["seconds"]
    done = total - training.resumed_updates
    speed = f"{seconds:.3g} s, {done / max(seconds, 1e-9):,.0f} per second"
    run = f"{done:,} of them in this run, in {speed}" if training.resumed_updates else f"in {speed}"
    early = ", stopped early: the loss improved no more" if total < training.updates else ""
    yield Fact("updates", f"{total:,}, {run}{early}", total)
    emit_values(seconds=seconds, resumed_updates=training.resumed_updates)
    yield Fact("device", metadata["device"])


def _describe_reference(learned: LearnedDistance, training: TrainingSummary) -> Iterator[Fact]:
    reference, source = training.reference, training.source
    if reference is None or learned.points is None:
        return
    import jax.numpy as jnp

    from bisimetric.learned.evaluation import compute_errors

    values, exact, among = learned.values, reference.distance.values, ""
    if not isinstance(source, MDP):
        # Transitions out of the other states are unknown.
        exited = np.unique(np.asarray(source.states))
        values, exact = values[np.ix_(exited, exited)], exact[np.ix_(exited, exited)]
        if not reference.complete:
            among = f", among the {pluralise(len(exited), 'exited state')}"
    errors = compute_errors(jnp.asarray(exact), jnp.asarray(values))
    error = {name: float(each) for name, each in errors.items()}
    text = (
        f"largest error {error['error']:.3g}, largest exact distance {float(exact.max()):.3g}; "
        f"normalised error {error['normalised']:.3g}, correlation {error['correlation']:.3g}{among}"
    )
    yield Fact("reference", text, {**error, "max_exact_distance": float(exact.max())})


def describe_quality(
    kind: LearnedKind, quality: Quality, num_transitions: int, form: str
) -> Iterator[Fact | str]:
    """Yield the deviations of a network psi from a distance, and from its Bellman equation.

    Some networks are symmetric, or metrics, by construction.
    """
    metric = ", by construction" if form == "metric" else ""
    symmetric = ", by construction" if form in ("free", "mico") else metric
    expected = metric or ("" if kind == "mico" else ", and should be 0")
    rounded = metric and f"{metric} up to rounding"
    values = {
        name: float(getattr(quality, name))
        for name in ("symmetry", "identity", "triangle", "residual")
    }
    yield Fact("quality", f"psi on all pairs of {num_transitions} sampled transitions:", values)
    yield f"  symmetry   |psi(x, y) - psi(y, x)| is at most {quality.symmetry:.3g}{symmetric}"
    yield f"  identity   psi(x, x) is at most {quality.identity:.3g}{expected}"
    if kind == "reduced_mico":
        yield "  triangle   holds for the square root; there is no Bellman equation of its own"
        return
    yield f"  triangle   the triangle inequality fails by at most {quality.triangle:.3g}{rounded}"
    yield f"  residual   the mean Bellman residual is {quality.residual:.3g}"


def suggest_next(
    learned: LearnedDistance,
    distance: Distance | None,
    outputs: LearnedOutputOptions,
    program: str,
    exact: Sequence[str],
) -> Iterator[Fact]:
    """Yield what to try after training; `exact` computes the exact distance, where it can."""
    if outputs.output is None:
        yield Fact("next", "add -o d.safetensors to save the network")
    else:
        load = f'bisimetric.learned.LearnedDistance.load("{outputs.output}")'
        yield Fact("next", f"in Python, d = {load}; d(x, y)")
    if distance is not None and outputs.matrix is not None:
        s, t = map(distance.mdp.state_name, find_farthest_pair(distance))
        yield Fact("next", shlex.join([program, "explain", str(outputs.matrix), s, t]))
    elif distance is not None:
        yield Fact("next", "add --matrix d.npz for `bisimetric explain` and `bisimetric show`")
    if exact:
        yield Fact("next", f"{shlex.join(exact)}, which is exact")


def format_title(kind: str, discount: float, metadata: Mapping[str, Any]) -> str:
    """Format the title of a figure of the training.

    >>> format_title("on_policy", 0.99, {"world": "data/cart.npz", "seeds": [3]})
    'Learning d^pi, the on-policy distance, from cart.npz: discount 0.99, seed 3'
    """
    source = f", from {Path(metadata['world']).name}" if "world" in metadata else ""
    seeds = metadata["seeds"]
    runs = f"seed {seeds[0]}" if len(seeds) == 1 else pluralise(len(seeds), "seed")
    return f"Learning {TITLES[kind]}{source}: discount {discount:g}, {runs}"


@dataclasses.dataclass(frozen=True, eq=False)
class LearnedFile:
    """A file written by `learned`: a distance, or a checkpoint.

    Attributes:
        path: the file.
        description: which of them it is.
        metadata: how it was learned.
        num_features: features per state, those of the terminal state included.
        history: the records of the training.
    """

    path: Path
    description: str
    metadata: dict[str, Any]
    num_features: int
    history: dict[str, NDArray[np.float64]]

    @property
    def title(self) -> str:
        """The title of a figure of the training."""
        return format_title(self.metadata["kind"], self.metadata["discount"], self.metadata)


def read_learned_file(path: Path, label: Mapping[str, Any]) -> LearnedFile:
    """Read a file written by `learned`, whose metadata are `label`."""
    from bisimetric.learned import files
    from bisimetric.learned.learned_distance import LearnedDistance

    if label["format"] == files.RUN_FORMAT:
        tensors, about = files.read_tensors(path, files.RUN_FORMAT, "learning run")
        metadata = {**about, "updates": files.read_update_count(path, tensors)}
        num_features = about.get("features")
        if num_features is None:
            weights = tensors.get(".parameters[0]['weights']")
            num_features = 0 if weights is None or weights.ndim < 2 else weights.shape[1] // 2
        history, description = files.extract_history(tensors), "a checkpoint of a training run"
    else:
        learned = LearnedDistance.load(path)
        metadata, description = learned.metadata, "a learned distance"
        num_features, history = learned.scaling.num_features, learned.history
    return LearnedFile(path, description, metadata, num_features, history)


def describe_file(file: LearnedFile) -> Iterator[Fact]:
    """Yield the contents of a file written by `learned`."""
    metadata, history = file.metadata, file.history
    yield Fact("file", f"{file.path}: {file.description}", str(file.path))
    yield describe_kind(metadata["kind"], ": an approximation, nothing is proven")
    if "world" in metadata:
        data = f": {metadata['data']}" if "data" in metadata else ""
        yield Fact("from", f"{metadata['world']}{data}")
    yield Fact("discount", f"{metadata['discount']:g}", metadata["discount"])
    yield describe_algorithm(metadata)
    if (model := describe_model(metadata)) is not None:
        yield model
    yield describe_network(file.num_features, metadata)
    yield Fact("updates", f"{metadata['updates']:,}", metadata["updates"])
    yield describe_horizon(metadata, metadata["discount"])
    if len(history.get("step", ())):
        yield describe_loss(history)
    if "error" in history:
        error, normalised = (
            float(np.mean(history[name][..., -1])) for name in ("error", "normalised")
        )
        text = f"largest error {error:.3g}, normalised {normalised:.3g}, at the end"
        yield Fact("reference", text, {"error": error, "normalised": normalised})
    yield describe_optimiser(metadata)
    yield from (
        Fact(key, metadata[key]) for key in ("device", "bisimetric", "jax") if key in metadata
    )
