"""`bisimetric learned`: distances that a network learns, of a world or of data."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bisimetric.cli.arguments import Drawn, Pictures, Policy, program
from bisimetric.cli.interrupts import resumable
from bisimetric.cli.learning import (
    Kept,
    Lessons,
    Results,
    Taught,
    opened,
)
from bisimetric.cli.policies import chosen_policy, policy_of_data
from bisimetric.cli.recipes import (
    PaperTraining,
    Trained,
    TrainedAsInThePaper,
    Training,
    arguments,
    in_flags,
    steps_in,
)
from bisimetric.errors import Diverged, InputError, TableTooLarge

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bisimetric.cli.networks import Course
    from bisimetric.learned import Learned
    from bisimetric.learned.losses import Kind
    from bisimetric.mdp import MDP
    from bisimetric.transitions import Transitions


def bisimulation(lessons: Taught, training: Trained, results: Kept, pictures: Drawn) -> None:
    """d~ by a network: the value of two copies of the world walked together. An approximation.

    Examples:
        bisimetric learned bisimulation mirrored-rooms --steps 4k --curve curve.png
        bisimetric learned bisimulation mirrored-rooms --table d.npz --from 4,3 --plot map.png
        bisimetric learned bisimulation data.npz --hidden 64 64 --batch 64 -o d.safetensors
        bisimetric learned bisimulation mirrored-rooms --steps 48k --checkpoint run.safetensors
        bisimetric learned bisimulation mirrored-rooms --steps 48k --resume run.safetensors
        bisimetric learned bisimulation mirrored-rooms --recipe paper --hidden 64 --steps 40k
    """
    _learn("bisimulation", lessons, training, results, pictures)


def on_policy(
    lessons: Taught, training: Trained, results: Kept, pictures: Drawn, policy: Policy = None
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
    _learn("on_policy", lessons, training, results, pictures, policy)


def mico(
    lessons: Taught,
    training: TrainedAsInThePaper,
    results: Kept,
    pictures: Drawn,
    policy: Policy = None,
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
    _learn("mico", lessons, training, results, pictures, policy)


def _learn(
    kind: Kind,
    lessons: Lessons,
    training: Training | PaperTraining,
    results: Results,
    pictures: Pictures,
    policy: str | None = None,
) -> None:
    """Learns, saves and reports."""
    options = arguments(training)
    before = 0 if training.resume is None else steps_in(training.resume, training)
    source = opened(lessons, training, results, pictures)
    from bisimetric import learned
    from bisimetric.cli.experience import in_shell_words, size
    from bisimetric.cli.networks import Course, branches
    from bisimetric.cli.truth import truth_of
    from bisimetric.mdp import MDP

    actions, called = _policy(kind, source, policy)
    torn = not isinstance(source, MDP) and branches(kind, source, actions)
    # What the network then tends to is no distance that `exact` knows.
    truth = None if torn else truth_of(kind, source, actions, lessons.discount)
    about = {"world": lessons.world}
    if called is not None:
        options["policy"] = actions
    if not isinstance(source, MDP):
        options["discount"] = lessons.discount
        about["data"] = size(source)
    elif truth is not None:
        options["truth"] = truth.distance
    words = [*lessons.words(), *([] if policy is None else ["--policy", policy])]
    solve = [program(), "exact", kind.replace("_", "-"), *words]
    train: Callable[..., Learned] = getattr(learned, kind)
    try:
        with _kept(training.checkpoint):
            found = train(source, **options)
    except InputError as error:
        said = in_shell_words(str(error), solve)
        raise InputError(in_flags(said, [program(), *words])) from None
    except TableTooLarge as error:
        raise TableTooLarge(in_flags(str(error))) from None
    except Diverged as error:
        raise Diverged(in_flags(str(error)), error.partial) from None
    found = dataclasses.replace(found, made={**found.made, **about})
    course = Course(source, actions, called, torn, truth, options["steps"], before, training.noise)
    _finish(found, course, results, pictures, [] if truth is None else solve)


def _finish(
    found: Learned, course: Course, results: Results, pictures: Pictures, solve: list[str]
) -> None:
    """What was learned is saved, said and drawn, in this order."""
    from bisimetric.cli import report
    from bisimetric.cli.networks import learned_lines, next_lines, title

    if results.output is not None:
        found.save(results.output)
    table = None
    if found.mdp is not None:
        table = found.distance()
        if course.called is not None:
            table = dataclasses.replace(table, made={**table.made, "policy": course.called})
        if results.table is not None:
            table.save(results.table)
    saved = report.saved_lines([results.output, results.table])
    report.say(learned_lines(found, table, course), saved)
    if results.curve is not None:
        from bisimetric import views

        words = title(found.kind, found.discount, found.made)
        views.save(views.training_curve(found.history, title=words), results.curve)
    if table is not None:
        pictures.draw(table)
    following = next_lines(found, table, results, program(), solve)
    report.say(report.saved_lines([results.curve, *pictures.paths]), following)


def _policy(
    kind: Kind, source: MDP | Transitions, policy: str | None
) -> tuple[NDArray[Any] | None, str | None]:
    """The actions of the policy, and how to call it; nothing for d~."""
    from bisimetric.mdp import MDP

    if kind == "bisimulation":
        return None, None
    return chosen_policy(source, policy) if isinstance(source, MDP) else policy_of_data(policy)


@contextlib.contextmanager
def _kept(checkpoint: Path | None) -> Iterator[None]:
    """Makes an interrupt tell where the run is kept, or what would have kept it."""
    if checkpoint is not None:
        with resumable(checkpoint):
            yield
        return
    try:
        yield
    except KeyboardInterrupt:
        said = "--checkpoint RUN.safetensors would keep such a run"
        raise KeyboardInterrupt(said) from None
