"""The flags of `bisimetric learned` that tell how a network learns: a recipe, and its numbers.

The words of `bisimetric learned`: what a network learns from, and what is kept of it.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import OmitArgPrefixes, arg

from bisimetric.cli.options import FigureOptions, parse_count, validate_outputs
from bisimetric.cli.sampled_options import DataOptions
from bisimetric.errors import InputError

if TYPE_CHECKING:
    from bisimetric.learned import FreeNetwork, MetricNetwork
    from bisimetric.learned.training import Algorithm
    from bisimetric.mdp import MDP
    from bisimetric.transitions import Transitions


DEFAULT_UPDATES = {"coupled": "24k", "paper": "100k"}


def _format_default(hint: str) -> str:
    """What help says of a default that is the recipe's."""
    return f"(default: {hint})"


@dataclasses.dataclass(frozen=True)
class AlgorithmOptions:
    """How d~ and d^pi are learned."""

    algorithm: Annotated[Literal["coupled", "paper"], arg(metavar="{coupled,paper}")] = "coupled"
    """`coupled`: by the value of two copies walked together; `paper`: as in Castro (2020)"""
    network: Annotated[
        Literal["metric", "free"] | None,
        arg(metavar="{metric,free}", help_behavior_hint="(default: metric)"),
    ] = None
    """of the coupled recipe: `metric` is one by construction, `free` only symmetric"""


@dataclasses.dataclass(frozen=True)
class MicoAlgorithmOptions:
    """How MICo is learned."""

    algorithm: Annotated[Literal["paper"], arg(metavar="{paper}")] = "paper"
    """that of Castro (2020), the only one for MICo"""


@dataclasses.dataclass(frozen=True)
class TrainingOptions:
    """The network, and how it learns; None is what the recipe says."""

    updates: Annotated[
        str | None,
        arg(metavar="N", help_behavior_hint=_format_default("24k; of the paper's recipe, 100k")),
    ] = None
    """how many, those before --resume included; 240000, 240_000, 2.4e5 or 240k"""
    seed: Annotated[int, arg(metavar="K")] = 0
    """of the weights and the batches; the same key gives the same network"""
    hidden: Annotated[
        tuple[int, ...] | None,
        arg(
            metavar="N [N ...]",
            help_behavior_hint=_format_default(
                "256 256; of a free network, 512; of the paper's recipe, 128"
            ),
        ),
    ] = None
    """the widths of the hidden layers; a free network has one, and the paper's had 729"""
    batch_size: Annotated[
        int | None,
        arg(metavar="B", help_behavior_hint=_format_default("256; of the paper's recipe, 128")),
    ] = None
    """transitions a step; all pairs of them are compared"""
    learning_rate: Annotated[
        float | None, arg(metavar="R", help_behavior_hint=_format_default("0.001"))
    ] = None
    """of Adam; in the coupled recipe it rises for 500 steps, and falls to 0 at the last one"""
    target_update_period: Annotated[
        int | None,
        arg(metavar="C", help_behavior_hint=_format_default("25; of the paper's recipe, 500")),
    ] = None
    """steps between two updates of the target network"""
    horizon_growth: Annotated[
        float | None, arg(metavar="Q", help_behavior_hint=_format_default("0.9"))
    ] = None
    """of the paper's recipe: 1 - Q^k of the horizon counts after k updates of the target"""
    output_activation: Annotated[
        Literal["open", "relu", "softplus", "linear"] | None,
        arg(name="out", metavar="{open,relu,...}", help_behavior_hint=_format_default("open")),
    ] = None
    """of the paper's recipe: what keeps psi at least 0; its own, `relu`, may end at 0 for good"""
    log_every: Annotated[str, arg(metavar="N")] = "500"
    """steps between two records of loss and errors"""
    patience: Annotated[int | None, arg(metavar="N", help_behavior_hint="(default: none)")] = None
    """stop when the loss has not fallen in so many records, once the horizon is nearly whole"""
    noise: Annotated[float, arg(metavar="S")] = 0.0
    """of a world: deviation of what is added to the states' features, at most three times that"""
    checkpoint: Annotated[Path | None, arg(metavar="RUN.safetensors", help_behavior_hint="")] = None
    """keep the run here, each minute and at the end, also after Ctrl-C"""
    resume: Annotated[Path | None, arg(metavar="RUN.safetensors", help_behavior_hint="")] = None
    """go on from such a file; in the coupled recipe, with the same --steps"""
    device: Annotated[
        Literal["cpu", "gpu"] | None,
        arg(metavar="{cpu,gpu}", help_behavior_hint="(default: the best there is)"),
    ] = None
    """what to compute on"""

    def to_arguments(self, algorithm: str, network: str | None = None) -> dict[str, Any]:
        """What `learned.bisimulation` and the others are called with."""
        numbers = {
            "steps": parse_count(
                "--steps",
                DEFAULT_UPDATES[algorithm] if self.updates is None else self.updates,
                minimum=1,
            ),
            "every": parse_count("--every", self.log_every, minimum=1),
        }
        self._validate(algorithm, network)
        try:
            settings = (
                self._build_castro2020()
                if algorithm == "paper"
                else self._build_pair_q(network or "metric")
            )
        except InputError as error:
            raise InputError(translate_arguments(str(error))) from None
        return {
            **numbers,
            "key": self.seed,
            "settings": settings,
            "patience": self.patience,
            # The paper's share: 0.3 for a deviation of 0.1.
            **({"noise": self.noise, "most": 3 * self.noise} if self.noise else {}),
            "checkpoint": self.checkpoint,
            "resume": self.resume,
            "device": self.device,
        }

    def _validate(self, algorithm: str, network: str | None) -> None:
        """Refuses flags of another recipe, and widths that no network has."""
        if algorithm == "paper" and network is not None:
            raise InputError(
                "--network is for the coupled recipe; leave it out, or leave out --recipe paper."
            )
        if algorithm != "paper":
            for flag, value in (("--rate", self.horizon_growth), ("--out", self.output_activation)):
                if value is not None:
                    raise InputError(
                        f"{flag} is for the paper's recipe; add --recipe paper, or leave it out."
                    )
        if self.hidden is None:
            return
        given = " ".join(map(str, self.hidden)) or "empty"
        if not self.hidden or min(self.hidden) < 1:
            raise InputError(f"--hidden is {given} and must be whole numbers, at least 1.")
        if network == "free" and len(self.hidden) > 1:
            raise InputError(
                f"--hidden is {given} and a free network has one hidden layer; give one width, "
                "such as 512."
            )

    def _build_pair_q(self, network: str) -> Algorithm:
        from bisimetric.learned import FreeNetwork, MetricNetwork, PairQConfig

        form: type[MetricNetwork | FreeNetwork]
        form = MetricNetwork if network == "metric" else FreeNetwork
        return PairQConfig(form(**omit_none(hidden=self.hidden)), **self._shared_arguments())

    def _build_castro2020(self) -> Algorithm:
        from bisimetric.learned import castro2020

        network = castro2020.PairNetwork(
            **omit_none(hidden=self.hidden, output=self.output_activation)
        )
        return castro2020.Castro2020Config(
            network, **self._shared_arguments(), **omit_none(rate=self.horizon_growth)
        )

    def _shared_arguments(self) -> dict[str, Any]:
        return omit_none(
            batch=self.batch_size,
            learning_rate=self.learning_rate,
            period=self.target_update_period,
        )


@dataclasses.dataclass(frozen=True)
class LearnedTrainingOptions(TrainingOptions, AlgorithmOptions):
    """The recipe, the network, and how it learns."""


@dataclasses.dataclass(frozen=True)
class MicoTrainingOptions(TrainingOptions, MicoAlgorithmOptions):
    """The network, and how it learns."""


LearnedTrainingArg = OmitArgPrefixes[LearnedTrainingOptions]
MicoTrainingArg = OmitArgPrefixes[MicoTrainingOptions]


def build_arguments(training: LearnedTrainingOptions | MicoTrainingOptions) -> dict[str, Any]:
    """What a learned distance is called with, from its flags."""
    network = training.network if isinstance(training, LearnedTrainingOptions) else None
    return training.to_arguments(training.algorithm, network)


def omit_none(**flags: Any) -> dict[str, Any]:
    """The flags that were typed.

    >>> given(batch=64, period=None)
    {'batch': 64}
    """
    return {name: value for name, value in flags.items() if value is not None}


def read_num_updates(
    checkpoint: Path, training: LearnedTrainingOptions | MicoTrainingOptions
) -> int:
    """How many steps a saved run has taken, where it follows the recipe that is asked for."""
    from bisimetric.cli.network_report import get_algorithm
    from bisimetric.learned import files

    tensors, about = files.read_tensors(checkpoint, files.RUN_FORMAT, "learning run")
    found = get_algorithm(about)
    if isinstance(training, LearnedTrainingOptions) and found != training.algorithm:
        raise InputError(
            f"{checkpoint} follows --recipe {found} and here it is {training.algorithm}; resume it with the "
            "same, or start anew."
        )
    return files.read_update_count(checkpoint, tensors)


def translate_arguments(message: str, words: Sequence[str] = ()) -> str:
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
    for here, there in FLAG_TRANSLATIONS.items():
        message = message.replace(here, there)
    return message.replace(
        "learning_rate", "learning-rate" if message.startswith("--") else "--learning-rate"
    )


FLAG_TRANSLATIONS = {
    "another key": "another --key",
    "the batch of the Settings": "--batch",
    "hidden units": "--hidden units",
    "a PairNetwork with output='open'": "--out open",
    "its network is ": "its --hidden is ",
    "the same network,": "the same --hidden,",
    "its form is ": "its --network is ",
    "the same form,": "the same --network,",
}
"""Words of the library, and those of the command line."""


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
