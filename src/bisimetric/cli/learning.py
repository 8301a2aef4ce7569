"""The words of `bisimetric learned`: what a network learns from, and what is kept of it."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import OmitArgPrefixes, arg

from bisimetric.cli.arguments import FigureOptions, validate_outputs
from bisimetric.cli.sampling import DataOptions
from bisimetric.errors import InputError

if TYPE_CHECKING:
    from bisimetric.cli.recipes import LearnedTrainingOptions, MicoTrainingOptions
    from bisimetric.mdp import MDP
    from bisimetric.transitions import Transitions

LEARNED_FORMATS = ("bisimetric learned distance", "bisimetric learning run")
"""How the files of `learned` begin to say what they are."""

MAX_HEADER_BYTES = 100_000_000
"""The largest header that a .safetensors file may have."""


@dataclasses.dataclass(frozen=True)
class LearnedSourceOptions(DataOptions):
    """What a network learns from."""

    def read(self) -> MDP | Transitions:
        """The world, or the data with its observations."""
        from bisimetric.transitions import Transitions
        from bisimetric.transitions.files import is_transitions_file

        if read_label(Path(self.world)) is not None:
            raise InputError(
                f"{self.world} was saved by `bisimetric learned` and is no world or data; see it "
                f"with `bisimetric show {self.world}`, or go on from a run with --resume."
            )
        if not is_transitions_file(self.world):
            return self.load()
        if self.options:
            raise InputError(f"{self.world} holds transitions, which --set cannot change.")
        return Transitions.load(self.world)


@dataclasses.dataclass(frozen=True)
class LearnedOutputOptions:
    """What is kept of a network."""

    output: Annotated[
        Path | None, arg(aliases=["-o"], metavar="D.safetensors", help_behavior_hint="")
    ] = None
    """save the network: `bisimetric show` and Learned.load read it"""
    matrix: Annotated[Path | None, arg(metavar="D.npz", help_behavior_hint="")] = None
    """of a world, save the table of its states: `bisimetric show` and `explain` read it"""
    plot_training: Annotated[Path | None, arg(metavar="PNG", help_behavior_hint="")] = None
    """save a picture of the loss over the steps, and of the errors where they are known"""

    @property
    def paths(self) -> list[Path]:
        return [path for path in (self.output, self.matrix, self.plot_training) if path is not None]

    def validate(self) -> None:
        """Refuses a file that could not be saved, before any long work starts."""
        for path, ending, what in (
            (self.output, ".safetensors", "a network"),
            (self.matrix, ".npz", "a table"),
        ):
            if path is not None and path.suffix != ending:
                raise InputError(
                    f"cannot save {what} as {path}; the name must end in {ending}, and "
                    "-o d.safetensors keeps the network, --table d.npz the table of a world."
                )
        FigureOptions(plot_map=self.plot_training).validate()


LearnedSourceArg = OmitArgPrefixes[LearnedSourceOptions]
LearnedOutputArg = OmitArgPrefixes[LearnedOutputOptions]


def open_learned_source(
    source_options: LearnedSourceOptions,
    training: LearnedTrainingOptions | MicoTrainingOptions,
    output_options: LearnedOutputOptions,
    figures: FigureOptions,
) -> MDP | Transitions:
    """The source, once all places to save to are known to be good."""
    outputs = [*output_options.paths, *figures.paths]
    validate_outputs(*outputs, training.checkpoint)
    if training.resume is not None and training.resume in outputs:
        raise InputError(f"{training.resume} is the run to go on from; name another file to save.")
    output_options.validate()
    figures.validate()
    source = source_options.read()
    from bisimetric.mdp import MDP

    if isinstance(source, MDP):
        figures.validate_states(source)
    elif output_options.matrix is not None or figures.paths:
        path = output_options.matrix or figures.paths[0]
        raise InputError(
            f"cannot save {path}: a table is of the states of a world, and {source_options.world} holds "
            "transitions; -o d.safetensors keeps the network, which takes any two observations."
        )
    return source


def read_label(path: Path) -> dict[str, Any] | None:
    """What a file of `learned` says of itself; None for any other file. Only its head is read."""
    try:
        with open(path, "rb") as file:
            size = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(size)) if size <= MAX_HEADER_BYTES else {}
        about = json.loads(header["__metadata__"]["about"])
        return about if str(about["format"]).startswith(LEARNED_FORMATS) else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
