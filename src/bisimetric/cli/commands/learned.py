"""`bisimetric learned`: distances approximated by a network, for an MDP or transitions."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from bisimetric.cli.learned_options import (
    LearnedOutputOptions,
    LearnedTrainingOptions,
    MicoTrainingOptions,
    build_arguments,
    read_num_updates,
    read_source,
)
from bisimetric.cli.options import (
    DataOptions,
    FigureOptions,
    PolicyArg,
    program_name,
    resolve_data_policy,
    resolve_policy,
)
from bisimetric.cli.output import report_checkpoint, translate_source

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bisimetric.cli.learned_report import TrainingSummary
    from bisimetric.learned import LearnedDistance
    from bisimetric.learned.losses import LearnedKind
    from bisimetric.mdp import MDP
    from bisimetric.transitions import Transitions


def bisimulation(
    source: DataOptions,
    training: LearnedTrainingOptions,
    outputs: LearnedOutputOptions,
    figures: FigureOptions,
) -> None:
    """d~ by a network: the optimal value of the synchronous product MDP. An approximation.

    Examples:
        bisimetric learned bisimulation mirrored-rooms --updates 4k --plot-training curve.png
        bisimetric learned bisimulation mirrored-rooms --matrix d.npz --from 4,3 --plot-map m.png
        bisimetric learned bisimulation data.npz --hidden 64 64 --batch-size 64 -o d.safetensors
        bisimetric learned bisimulation mirrored-rooms --updates 48k --checkpoint run.safetensors
        bisimetric learned bisimulation mirrored-rooms --updates 48k --resume run.safetensors
        bisimetric learned bisimulation FrozenLake-v1 --algorithm model-based --updates 2k
        bisimetric learned bisimulation mirrored-rooms --algorithm castro2020 --updates 40k
    """
    _learn("bisimulation", source, training, outputs, figures)


def on_policy(
    source: DataOptions,
    training: LearnedTrainingOptions,
    outputs: LearnedOutputOptions,
    figures: FigureOptions,
    policy: PolicyArg = None,
) -> None:
    """d^pi by a network: the value of the synchronous product under one policy. An approximation.

    Args:
        policy: `own` (the world's), `optimal`, or a .npy or .txt file with one action per state;
            for data it selects transitions, and without it all of them follow the policy

    Examples:
        bisimetric learned on-policy data.npz --hidden 64 64 --batch-size 64 -o d.safetensors
        bisimetric learned on-policy mirrored-rooms --policy optimal --noise 0.1
        bisimetric learned on-policy data.npz --policy actions.txt --device gpu -o d.safetensors
        bisimetric learned on-policy data.npz --algorithm castro2020 --target-update-period 100
    """
    _learn("on_policy", source, training, outputs, figures, policy)


def mico(
    source: DataOptions,
    training: MicoTrainingOptions,
    outputs: LearnedOutputOptions,
    figures: FigureOptions,
    policy: PolicyArg = None,
) -> None:
    """MICo by a network, also of stochastic data and worlds. An approximation.

    Self-distances may be nonzero (Castro et al. 2021).

    Args:
        policy: `own` (the world's), `optimal`, or a .npy or .txt file with one action per state;
            for data it selects transitions, and without it all of them follow the policy

    Examples:
        bisimetric learned mico data.npz --hidden 64 --batch-size 64 -o d.safetensors
        bisimetric learned mico data.npz --network angular -o d.safetensors
        bisimetric learned mico mirrored-rooms --policy optimal --matrix d.npz
    """
    _learn("mico", source, training, outputs, figures, policy)


def reduced_mico(
    source: DataOptions,
    training: MicoTrainingOptions,
    outputs: LearnedOutputOptions,
    figures: FigureOptions,
    policy: PolicyArg = None,
) -> None:
    """Reduced MICo by a network: MICo less the mean of its self-distances. An approximation.

    MICo is learned, and reduced (Castro et al. 2023); the training curve is that of MICo.

    Args:
        policy: `own` (the world's), `optimal`, or a .npy or .txt file with one action per state;
            for data it selects transitions, and without it all of them follow the policy

    Examples:
        bisimetric learned reduced-mico data.npz --hidden 64 --batch-size 64 -o d.safetensors
        bisimetric learned reduced-mico mirrored-rooms --policy optimal --matrix d.npz
    """
    _learn("reduced_mico", source, training, outputs, figures, policy)


def _learn(
    kind: LearnedKind,
    source: DataOptions,
    training: LearnedTrainingOptions | MicoTrainingOptions,
    outputs: LearnedOutputOptions,
    figures: FigureOptions,
    policy: str | None = None,
) -> None:
    """Train, save and report."""
    options = build_arguments(training)
    resumed = 0 if training.resume is None else read_num_updates(training.resume, training)
    data = read_source(source, training, outputs, figures)
    from bisimetric import learned
    from bisimetric.cli.data_report import compute_reference, format_data
    from bisimetric.cli.learned_report import TrainingSummary
    from bisimetric.mdp import MDP

    actions, policy_name = _resolve_policy(kind, data, policy)
    trained_kind: LearnedKind = "mico" if kind == "reduced_mico" else kind
    reference = compute_reference(trained_kind, data, actions, source.discount)
    metadata = {"world": source.world}
    if policy_name is not None:
        options["policy"] = actions
    if not isinstance(data, MDP):
        options["discount"] = source.discount
        metadata["data"] = format_data(data)
    elif reference is not None:
        options["reference"] = reference.distance
    words = [*source.to_arguments(), *([] if policy is None else ["--policy", policy])]
    exact = [program_name(), "exact", kind.replace("_", "-"), *words]
    on_policy = [program_name(), "learned", "on-policy", *words]
    train: Callable[..., LearnedDistance] = getattr(learned, trained_kind)
    with (
        translate_source(source.world, exact=exact, learned=on_policy),
        report_checkpoint(training.checkpoint, "RUN.safetensors"),
    ):
        distance = train(data, **options)
    if kind == "reduced_mico":
        distance = learned.reduced_mico(distance)
        reference = compute_reference(kind, data, actions, source.discount)
    distance = dataclasses.replace(distance, metadata={**distance.metadata, **metadata})
    if distance.metadata.get("stochastic_data"):
        # The limit of the training is then none of the distances of `exact`.
        reference = None
    summary = TrainingSummary(
        data,
        actions,
        policy_name,
        reference,
        options["updates"] or distance.metadata["updates"],
        resumed,
        training.noise,
    )
    comparable = reference is not None or isinstance(data, MDP)
    _write_result(distance, summary, outputs, figures, exact if comparable else [])


def _write_result(
    learned: LearnedDistance,
    training: TrainingSummary,
    outputs: LearnedOutputOptions,
    figures: FigureOptions,
    exact: Sequence[str],
) -> None:
    """Save the network and its distance matrix, report them and draw the figures."""
    from bisimetric.cli import report
    from bisimetric.cli.learned_report import describe_learned, format_title, suggest_next

    if outputs.output is not None:
        learned.save(outputs.output)
    distance = None
    if learned.mdp is not None:
        distance = learned.to_distance()
        if training.policy_name is not None:
            metadata = {**distance.metadata, "policy": training.policy_name}
            distance = dataclasses.replace(distance, metadata=metadata)
        if outputs.matrix is not None:
            distance.save(outputs.matrix)
    saved = report.describe_saved([outputs.output, outputs.matrix])
    report.emit(describe_learned(learned, distance, training), saved)
    if outputs.plot_training is not None:
        from bisimetric import views

        title = format_title(learned.kind, learned.discount, learned.metadata)
        figure = views.plot_training_curve(learned.history, title=title)
        views.save_figure(figure, outputs.plot_training)
    if distance is not None:
        figures.draw(distance)
    commands = suggest_next(learned, distance, outputs, program_name(), exact)
    report.emit(report.describe_saved([outputs.plot_training, *figures.paths]), commands)


def _resolve_policy(
    kind: LearnedKind, data: MDP | Transitions, policy: str | None
) -> tuple[NDArray[Any] | None, str | None]:
    """Return the actions of the policy and its name; None for d~."""
    from bisimetric.mdp import MDP

    if kind == "bisimulation":
        return None, None
    return resolve_policy(data, policy) if isinstance(data, MDP) else resolve_data_policy(policy)
