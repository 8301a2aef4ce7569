"""The words of `bisimetric learned`: what a network learns from, how, and what is kept of it."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import OmitArgPrefixes, arg

from bisimetric.cli.arguments import Pictures, check_outputs, count
from bisimetric.cli.sampling import Experience
from bisimetric.errors import InputError

if TYPE_CHECKING:
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
class Training:
    """The network, and how it learns."""

    steps: Annotated[str, arg(metavar="N")] = "100k"
    """how many, those before --resume included; 240000, 240_000, 2.4e5 or 240k"""
    key: Annotated[int, arg(metavar="K")] = 0
    """of the weights and the batches; the same key gives the same network"""
    hidden: Annotated[tuple[int, ...], arg(metavar="N [N ...]")] = (128,)
    """the widths of the hidden layers; the paper's is 729"""
    output: Annotated[
        Literal["open", "relu", "softplus", "linear"], arg(name="out", metavar="{open,relu,...}")
    ] = "open"
    """what keeps the distance at least 0: `relu`, the paper's, may come to rest at 0 for good"""
    batch: Annotated[int, arg(metavar="B")] = 128
    """transitions a step; all pairs of them are compared"""
    learning_rate: Annotated[float, arg(metavar="R")] = 1e-3
    """of Adam"""
    period: Annotated[int, arg(metavar="C")] = 500
    """steps between two updates of the target network"""
    rate: Annotated[float, arg(metavar="Q")] = 0.9
    """beta, the share of the horizon that counts, is 1 - Q^k after k updates of the target"""
    every: Annotated[str, arg(metavar="N")] = "500"
    """steps between two records of loss and errors"""
    patience: Annotated[int | None, arg(metavar="N", help_behavior_hint="(default: none)")] = None
    """stop when the loss has not fallen in so many records, once beta is nearly 1"""
    noise: Annotated[float, arg(metavar="S")] = 0.0
    """of a world: deviation of what is added to the states' features, at most three times that"""
    checkpoint: Annotated[Path | None, arg(metavar="RUN.safetensors", help_behavior_hint="")] = None
    """keep the run here, each minute and at the end, also after Ctrl-C"""
    resume: Annotated[Path | None, arg(metavar="RUN.safetensors", help_behavior_hint="")] = None
    """go on from such a file"""
    device: Annotated[
        Literal["cpu", "gpu"] | None,
        arg(metavar="{cpu,gpu}", help_behavior_hint="(default: the best there is)"),
    ] = None
    """what to compute on"""

    def arguments(self) -> dict[str, Any]:
        """What `learned.bisimulation` and the others are called with."""
        numbers = {
            "steps": count("--steps", self.steps, least=1),
            "every": count("--every", self.every, least=1),
        }
        if not self.hidden or min(self.hidden) < 1:
            given = " ".join(map(str, self.hidden)) or "empty"
            raise InputError(f"--hidden is {given} and must be whole numbers, at least 1.")
        from bisimetric.learned import PairNetwork, Settings

        try:
            settings = Settings(
                PairNetwork(self.hidden, output=self.output),
                batch=self.batch,
                learning_rate=self.learning_rate,
                period=self.period,
                rate=self.rate,
            )
        except InputError as error:
            raise InputError(in_flags(str(error))) from None
        return {
            **numbers,
            "key": self.key,
            "settings": settings,
            "patience": self.patience,
            # The paper's share: 0.3 for a deviation of 0.1.
            **({"noise": self.noise, "most": 3 * self.noise} if self.noise else {}),
            "checkpoint": self.checkpoint,
            "resume": self.resume,
            "device": self.device,
        }


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
Trained = OmitArgPrefixes[Training]
Kept = OmitArgPrefixes[Results]


def opened(
    lessons: Lessons, training: Training, results: Results, pictures: Pictures
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


def steps_in(run: Path) -> int:
    """How many steps a saved run has taken."""
    from bisimetric.learned import files

    tensors, _ = files.read(run, files.RUN, "learning run")
    return int(tensors[".step"].max())


def label_of(path: Path) -> dict[str, Any] | None:
    """What a file of `learned` says of itself; None for any other file. Only its head is read."""
    try:
        with open(path, "rb") as file:
            size = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(size)) if size <= HEADER else {}
        about = json.loads(header["__metadata__"]["about"])
        return about if str(about["format"]).startswith(FORMATS) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def in_flags(message: str, words: Sequence[str] = ()) -> str:
    """What the library says of its arguments, said for the command line; `words` call a command.

    >>> in_flags("Settings: learning_rate is 0 and must be above 0.")
    '--learning-rate is 0 and must be above 0.'
    >>> in_flags("no two are the same; use learned.on_policy.", ["bisimetric", "x.npz"])
    'no two are the same; use `bisimetric learned on-policy x.npz`.'
    """

    def command(match: re.Match[str]) -> str:
        program, *source = words
        return f"`{' '.join([program, 'learned', match[1].replace('_', '-'), *source])}`"

    if words:
        message = re.sub(r"\blearned\.([a-z]+_?[a-z]+)\b(?!:)", command, message)
    message = re.sub(r"^Settings: ", "--", message)
    message = message.replace("another key", "another --key")
    message = message.replace("the batch of the Settings", "--batch")
    return message.replace("hidden units", "--hidden units").replace(
        "learning_rate", "learning-rate" if message.startswith("--") else "--learning-rate"
    )
