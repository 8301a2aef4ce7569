"""`bisimetric learned`: distances that a network learns, of a world or of data."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bisimetric.cli.learned_options import (
    LearnedOutputArg,
    LearnedOutputOptions,
    LearnedSourceArg,
    LearnedSourceOptions,
    LearnedTrainingArg,
    LearnedTrainingOptions,
    MicoTrainingArg,
    MicoTrainingOptions,
    build_arguments,
    open_learned_source,
    read_num_updates,
    translate_arguments,
)
from bisimetric.cli.options import (
    FigureArg,
    FigureOptions,
    PolicyArg,
    program_name,
    resolve_data_policy,
    resolve_policy,
)
from bisimetric.cli.output import report_checkpoint
from bisimetric.errors import Diverged, InputError, InsufficientMemory

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bisimetric.cli.learned_report import TrainingSummary
    from bisimetric.learned import LearnedDistance
    from bisimetric.learned.losses import LearnedKind
    from bisimetric.mdp import MDP
    from bisimetric.transitions import Transitions


def bisimulation(
    source: LearnedSourceArg,
    training: LearnedTrainingArg,
    outputs: LearnedOutputArg,
    figures: FigureArg,
) -> None:
    """d~ by a network: the value of two copies of the world walked together. An approximation.

    Examples:
        bisimetric learned bisimulation mirrored-rooms --steps 4k --curve curve.png
        bisimetric learned bisimulation mirrored-rooms --table d.npz --from 4,3 --plot map.png
        bisimetric learned bisimulation data.npz --hidden 64 64 --batch 64 -o d.safetensors
        bisimetric learned bisimulation mirrored-rooms --steps 48k --checkpoint run.safetensors
        bisimetric learned bisimulation mirrored-rooms --steps 48k --resume run.safetensors
        bisimetric learned bisimulation mirrored-rooms --recipe paper --hidden 64 --steps 40k
    """
    _learn("bisimulation", source, training, outputs, figures)


def on_policy(
    source: LearnedSourceArg,
    training: LearnedTrainingArg,
    outputs: LearnedOutputArg,
    figures: FigureArg,
    policy: PolicyArg = None,
) -> None:
    """d^pi by a network: two copies of the world that follow one policy. An approximation.

    Args:
        policy: `own` (the world's), `optimal`, or a .npy or .txt file with one action a state;
            of data it picks the steps, and without it all of them follow the policy

    Examples:
        bisimetric learned on-policy data.npz --hidden 64 64 --batch 64 -o d.safetensors
        bisimetric learned on-policy mirrored-rooms --policy optimal --noise 0.1 --curve curve.png
        bisimetric learned on-policy data.npz --policy actions.txt --device gpu -o d.safetensors
        bisimetric learned on-policy data.npz --recipe paper --hidden 64 --period 100
    """
    _learn("on_policy", source, training, outputs, figures, policy)


def mico(
    source: LearnedSourceArg,
    training: MicoTrainingArg,
    outputs: LearnedOutputArg,
    figures: FigureArg,
    policy: PolicyArg = None,
) -> None:
    """MICo by a network: like d^pi, but a state may be far from itself (Castro et al. 2021).

    The recipe is the paper's.

    Args:
        policy: `own` (the world's), `optimal`, or a .npy or .txt file with one action a state;
            of data it picks the steps, and without it all of them follow the policy

    Examples:
        bisimetric learned mico data.npz --hidden 64 --batch 64 -o d.safetensors
        bisimetric learned mico mirrored-rooms --policy optimal --table d.npz
    """
    _learn("mico", source, training, outputs, figures, policy)


def _learn(
    kind: LearnedKind,
    source_options: LearnedSourceOptions,
    training: LearnedTrainingOptions | MicoTrainingOptions,
    outputs: LearnedOutputOptions,
    figures: FigureOptions,
    policy: str | None = None,
) -> None:
    """Learns, saves and reports."""
    options = build_arguments(training)
    before = 0 if training.resume is None else read_num_updates(training.resume, training)
    source = open_learned_source(source_options, training, outputs, figures)
    from bisimetric import learned
    from bisimetric.cli.data_report import compute_reference, format_data, translate_remedy
    from bisimetric.cli.learned_report import TrainingSummary, is_stochastic
    from bisimetric.mdp import MDP

    actions, called = _resolve_policy(kind, source, policy)
    torn = not isinstance(source, MDP) and is_stochastic(kind, source, actions)
    # What the network then tends to is no distance that `exact` knows.
    truth = None if torn else compute_reference(kind, source, actions, source_options.discount)
    about = {"world": source_options.world}
    if called is not None:
        options["policy"] = actions
    if not isinstance(source, MDP):
        options["discount"] = source_options.discount
        about["data"] = format_data(source)
    elif truth is not None:
        options["truth"] = truth.distance
    words = [*source_options.to_arguments(), *([] if policy is None else ["--policy", policy])]
    solve = [program_name(), "exact", kind.replace("_", "-"), *words]
    train: Callable[..., LearnedDistance] = getattr(learned, kind)
    try:
        with _report_checkpoint(training.checkpoint):
            found = train(source, **options)
    except InputError as error:
        said = translate_remedy(str(error), solve)
        raise InputError(translate_arguments(said, [program_name(), *words])) from None
    except InsufficientMemory as error:
        raise InsufficientMemory(translate_arguments(str(error))) from None
    except Diverged as error:
        raise Diverged(translate_arguments(str(error)), error.partial) from None
    found = dataclasses.replace(found, metadata={**found.metadata, **about})
    course = TrainingSummary(
        source, actions, called, torn, truth, options["steps"], before, training.noise
    )
    _write_result(found, course, outputs, figures, [] if truth is None else solve)


def _write_result(
    distance: LearnedDistance,
    training: TrainingSummary,
    outputs: LearnedOutputOptions,
    figures: FigureOptions,
    solve: list[str],
) -> None:
    """What was learned is saved, said and drawn, in this order."""
    from bisimetric.cli import report
    from bisimetric.cli.learned_report import describe_learned, format_title, suggest_next

    if outputs.output is not None:
        distance.save(outputs.output)
    table = None
    if distance.mdp is not None:
        table = distance.to_distance()
        if training.policy_name is not None:
            table = dataclasses.replace(
                table, metadata={**table.metadata, "policy": training.policy_name}
            )
        if outputs.matrix is not None:
            table.save(outputs.matrix)
    saved = report.describe_saved([outputs.output, outputs.matrix])
    report.print_lines(describe_learned(distance, table, training), saved)
    if outputs.plot_training is not None:
        from bisimetric import views

        words = format_title(distance.kind, distance.discount, distance.metadata)
        views.save_figure(
            views.plot_training_curve(distance.history, title=words), outputs.plot_training
        )
    if table is not None:
        figures.draw(table)
    following = suggest_next(distance, table, outputs, program_name(), solve)
    report.print_lines(report.describe_saved([outputs.plot_training, *figures.paths]), following)


def _resolve_policy(
    kind: LearnedKind, source: MDP | Transitions, policy: str | None
) -> tuple[NDArray[Any] | None, str | None]:
    """The actions of the policy, and how to call it; nothing for d~."""
    from bisimetric.mdp import MDP

    if kind == "bisimulation":
        return None, None
    return (
        resolve_policy(source, policy) if isinstance(source, MDP) else resolve_data_policy(policy)
    )


@contextlib.contextmanager
def _report_checkpoint(checkpoint: Path | None) -> Iterator[None]:
    """Makes an interrupt tell where the run is kept, or what would have kept it."""
    if checkpoint is not None:
        with report_checkpoint(checkpoint):
            yield
        return
    try:
        yield
    except KeyboardInterrupt:
        said = "--checkpoint RUN.safetensors would keep such a run"
        raise KeyboardInterrupt(said) from None
