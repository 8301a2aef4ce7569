"""The words of `bisimetric learned`: what a network learns from, and what is kept of it."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import OmitArgPrefixes, arg

from bisimetric.cli.arguments import Pictures, check_outputs
from bisimetric.cli.sampling import Experience
from bisimetric.errors import InputError

if TYPE_CHECKING:
    from bisimetric.cli.recipes import PaperTraining, Training
    from bisimetric.mdp import MDP
    from bisimetric.transitions import Transitions

FORMATS = ("bisimetric learned distance", "bisimetric learning run")
"""How the files of `learned` begin to say what they are."""

HEADER = 100_000_000
"""The largest header that a .safetensors file may have."""


@dataclasses.dataclass(frozen=True)
class Lessons(Experience):
    """What a network learns from."""

    def opened(self) -> MDP | Transitions:
        """The world, or the data with its observations."""
        from bisimetric.transitions import Transitions
        from bisimetric.transitions.files import holds_transitions

        if label_of(Path(self.world)) is not None:
            raise InputError(
                f"{self.world} was saved by `bisimetric learned` and is no world or data; see it "
                f"with `bisimetric show {self.world}`, or go on from a run with --resume."
            )
        if not holds_transitions(self.world):
            return self.load()
        if self.options:
            raise InputError(f"{self.world} holds transitions, which --set cannot change.")
        return Transitions.load(self.world)


@dataclasses.dataclass(frozen=True)
class Results:
    """What is kept of a network."""

    output: Annotated[
        Path | None, arg(aliases=["-o"], metavar="D.safetensors", help_behavior_hint="")
    ] = None
    """save the network: `bisimetric show` and Learned.load read it"""
    table: Annotated[Path | None, arg(metavar="D.npz", help_behavior_hint="")] = None
    """of a world, save the table of its states: `bisimetric show` and `explain` read it"""
    curve: Annotated[Path | None, arg(metavar="PNG", help_behavior_hint="")] = None
    """save a picture of the loss over the steps, and of the errors where they are known"""

    @property
    def paths(self) -> list[Path]:
        return [path for path in (self.output, self.table, self.curve) if path is not None]

    def check(self) -> None:
        """Refuses a file that could not be saved, before any long work starts."""
        for path, ending, what in (
            (self.output, ".safetensors", "a network"),
            (self.table, ".npz", "a table"),
        ):
            if path is not None and path.suffix != ending:
                raise InputError(
                    f"cannot save {what} as {path}; the name must end in {ending}, and "
                    "-o d.safetensors keeps the network, --table d.npz the table of a world."
                )
        Pictures(plot=self.curve).check()


Taught = OmitArgPrefixes[Lessons]
Kept = OmitArgPrefixes[Results]


def opened(
    lessons: Lessons,
    training: Training | PaperTraining,
    results: Results,
    pictures: Pictures,
) -> MDP | Transitions:
    """The source, once all places to save to are known to be good."""
    outputs = [*results.paths, *pictures.paths]
    check_outputs(*outputs, training.checkpoint)
    if training.resume is not None and training.resume in outputs:
        raise InputError(f"{training.resume} is the run to go on from; name another file to save.")
    results.check()
    pictures.check()
    source = lessons.opened()
    from bisimetric.mdp import MDP

    if isinstance(source, MDP):
        pictures.check_world(source)
    elif results.table is not None or pictures.paths:
        path = results.table or pictures.paths[0]
        raise InputError(
            f"cannot save {path}: a table is of the states of a world, and {lessons.world} holds "
            "transitions; -o d.safetensors keeps the network, which takes any two observations."
        )
    return source


def label_of(path: Path) -> dict[str, Any] | None:
    """What a file of `learned` says of itself; None for any other file. Only its head is read."""
    try:
        with open(path, "rb") as file:
            size = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(size)) if size <= HEADER else {}
        about = json.loads(header["__metadata__"]["about"])
        return about if str(about["format"]).startswith(FORMATS) else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
