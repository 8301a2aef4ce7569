"""Options of `bisimetric learned`: the algorithm, its hyperparameters, sources and outputs."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import arg

from bisimetric.cli.options import (
    DataOptions,
    DeviceArg,
    FigureArg,
    FigureOptions,
    SeedArg,
    parse_count,
    validate_files,
)
from bisimetric.cli.output import read_label
from bisimetric.errors import InputError

if TYPE_CHECKING:
    from bisimetric.learned import FreeNetwork, MetricNetwork
    from bisimetric.learned.training import Algorithm
    from bisimetric.mdp import MDP
    from bisimetric.transitions import Transitions

DEFAULT_UPDATES = {
    "pair-q": "24k",
    "model-based": "8k",
    "reward-sequence": "10k",
    "pair-td": "24k",
    "castro2020": "100k",
}
FLAGS_NOT_FOR = {
    "model-based": ("--target-update-period", "--lookahead", "--noise"),
    "reward-sequence": ("--network", "--target-update-period", "--lookahead", "--noise"),
}
"""Flags that an algorithm has no use for."""


@dataclasses.dataclass(frozen=True)
class AlgorithmOptions:
    """The algorithm that learns d~ or d^pi."""

    algorithm: Annotated[
        Literal["pair-q", "model-based", "reward-sequence", "castro2020"] | None,
        arg(
            metavar="{pair-q,model-based,reward-sequence,castro2020}",
            help_behavior_hint="(default: by the data)",
        ),
    ] = None
    """`pair-q`: Q-learning on pairs of states, the default for deterministic data; `model-based`:
    exact distances of a transition model, for stochastic ones; `reward-sequence`: the rewards of
    the next steps, for d^pi of recorded episodes; `castro2020`: that of the paper"""
    network: Annotated[
        Literal["metric", "free"] | None,
        arg(metavar="{metric,free}", help_behavior_hint="(default: metric)"),
    ] = None
    """of pair-q and model-based: `metric` is a pseudometric by construction, `free` symmetric"""


@dataclasses.dataclass(frozen=True)
class MicoAlgorithmOptions:
    """The algorithm that learns MICo."""

    algorithm: Annotated[Literal["pair-td", "castro2020"], arg(metavar="{pair-td,castro2020}")] = (
        "pair-td"
    )
    """`pair-td`: temporal differences on independent pairs; `castro2020`: that of the paper"""
    network: Annotated[
        Literal["squared", "angular"] | None,
        arg(metavar="{squared,angular}", help_behavior_hint="(default: squared)"),
    ] = None
    """for pair-td: `squared` represents any MICo; `angular` is that of Castro et al. (2021)"""


@dataclasses.dataclass(frozen=True)
class TrainingOptions:
    """The network and its training; None is the default of the algorithm.

    Without flags for pair-q, d^pi of data on a CPU has smaller ones: `learned.choose_config`.
    """

    updates: Annotated[
        str | None,
        arg(
            metavar="N",
            help_behavior_hint="(default: 24k; d^pi of data on a CPU: 8k; castro2020: 100k)",
        ),
    ] = None
    """total gradient updates, those before --resume included; 240000, 240_000, 2.4e5 or 240k"""
    seed: SeedArg = 0
    """seed of weights and batches; the same seed gives the same network"""
    hidden: Annotated[
        tuple[int, ...] | None,
        arg(
            metavar="N [N ...]",
            help_behavior_hint="(default: 256 256; free: 512; castro2020: 128)",
        ),
    ] = None
    """widths of the hidden layers; a free network has one, and the paper's had 729 units"""
    batch_size: Annotated[
        int | None, arg(metavar="B", help_behavior_hint="(default: 256; castro2020: 128)")
    ] = None
    """transitions per update; all pairs of them are compared"""
    learning_rate: Annotated[
        float | None, arg(metavar="R", help_behavior_hint="(default: 0.001)")
    ] = None
    """of Adam; except for castro2020, after 500 warm-up updates and with cosine decay to 0"""
    target_update_period: Annotated[
        int | None, arg(metavar="C", help_behavior_hint="(default: 25; castro2020: 500)")
    ] = None
    """updates between two synchronisations of the target network"""
    lookahead: Annotated[
        str | None, arg(metavar="N", help_behavior_hint="(default: 10; castro2020: 1)")
    ] = None
    """steps ahead of a target: n-step targets for d^pi from data; `inf`: recorded returns"""
    horizon_growth: Annotated[
        float | None, arg(metavar="Q", help_behavior_hint="(default: 0.9)")
    ] = None
    """for castro2020: beta is 1 - Q^k after k target updates"""
    output_activation: Annotated[
        Literal["open", "relu", "softplus", "linear"] | None,
        arg(metavar="{open,relu,...}", help_behavior_hint="(default: open)"),
    ] = None
    """for castro2020: keeps psi nonnegative; the paper's `relu` may stay at 0, `open` does not"""
    log_every: Annotated[str, arg(metavar="N")] = "500"
    """updates between two records of loss and errors"""
    patience: Annotated[int | None, arg(metavar="N", help_behavior_hint="(default: none)")] = None
    """stop when the loss has not improved for N records, once the horizon is nearly whole"""
    noise: Annotated[float, arg(metavar="S")] = 0.0
    """for worlds: standard deviation of noise on the features, clipped at three times that"""
    checkpoint: Annotated[Path | None, arg(metavar="RUN.safetensors", help_behavior_hint="")] = None
    """write a checkpoint every minute, at the end and after Ctrl-C"""
    resume: Annotated[Path | None, arg(metavar="RUN.safetensors", help_behavior_hint="")] = None
    """continue from a checkpoint; except for castro2020, with the same --updates"""
    device: DeviceArg = None
    """the device to train on"""

    def to_arguments(self, algorithm: str | None, network: str | None = None) -> dict[str, Any]:
        """Return the arguments of `learned.bisimulation` and the others."""
        chosen = algorithm is None and network is None and self._changes_nothing()
        algorithm = algorithm or "pair-q"
        updates = self.updates
        if updates is None and not chosen:
            updates = DEFAULT_UPDATES[algorithm]
        num_updates = None if updates is None else parse_count("--updates", updates, minimum=1)
        log_every = parse_count("--log-every", self.log_every, minimum=1)
        self._validate(algorithm, network)
        config: Algorithm | None
        if algorithm == "castro2020":
            config = self._build_castro2020()
        elif algorithm == "pair-td":
            config = self._build_pair_td(network or "squared")
        elif algorithm == "model-based":
            config = self._build_model_based(network or "metric")
        elif algorithm == "reward-sequence":
            config = self._build_reward_sequence()
        elif chosen:
            config = None
        else:
            config = self._build_pair_q(network or "metric")
        from bisimetric.learned import RunOptions

        return {
            "updates": num_updates,
            "seed": self.seed,
            "config": config,
            # The ratio of the paper: 0.3 for a deviation of 0.1.
            **({"noise": self.noise, "noise_clip": 3 * self.noise} if self.noise else {}),
            "options": RunOptions(
                log_every=log_every,
                patience=self.patience,
                checkpoint=self.checkpoint,
                resume=self.resume,
                device=self.device,
            ),
        }

    def _validate(self, algorithm: str, network: str | None) -> None:
        """Reject flags of the other algorithm, and impossible widths."""
        if algorithm == "castro2020" and network is not None:
            other = "pair-td" if network in ("squared", "angular") else "pair-q"
            raise InputError(
                f"--network is for --algorithm {other}; leave out one of --network and --algorithm."
            )
        given = {
            "--network": network,
            "--target-update-period": self.target_update_period,
            "--lookahead": self.lookahead,
            "--noise": self.noise or None,
        }
        for flag in FLAGS_NOT_FOR.get(algorithm, ()):
            if given[flag] is not None:
                raise InputError(
                    f"{flag} is not for --algorithm {algorithm}; leave out one of them."
                )
        if algorithm != "castro2020":
            for flag, value in (
                ("--horizon-growth", self.horizon_growth),
                ("--output-activation", self.output_activation),
            ):
                if value is not None:
                    raise InputError(
                        f"{flag} is for --algorithm castro2020; add that, or leave it out."
                    )
        if self.hidden is None:
            return
        widths = " ".join(map(str, self.hidden)) or "empty"
        if not self.hidden or min(self.hidden) < 1:
            raise InputError(f"--hidden is {widths} and must be whole numbers, at least 1.")
        if network == "free" and len(self.hidden) > 1:
            raise InputError(
                f"--hidden is {widths} and a free network has one hidden layer; give one width, "
                "such as 512."
            )

    def _changes_nothing(self) -> bool:
        """Return whether all hyperparameters are left to `learned.choose_config`."""
        flags = (
            self.hidden,
            self.batch_size,
            self.learning_rate,
            self.target_update_period,
            self.lookahead,
        )
        return all(flag is None for flag in flags)

    def _build_pair_q(self, network: str) -> Algorithm:
        from bisimetric.learned import FreeNetwork, MetricNetwork, PairQConfig

        form: type[MetricNetwork | FreeNetwork]
        form = MetricNetwork if network == "metric" else FreeNetwork
        return PairQConfig(form(**omit_none(hidden=self.hidden)), **self._get_shared_arguments())

    def _build_model_based(self, network: str) -> Algorithm:
        from bisimetric.learned import FreeNetwork, ModelBasedConfig

        config = ModelBasedConfig(**self._get_shared_arguments())
        form: MetricNetwork | FreeNetwork
        form = config.network if network == "metric" else FreeNetwork()
        form = dataclasses.replace(form, **omit_none(hidden=self.hidden))
        return dataclasses.replace(config, network=form)

    def _build_reward_sequence(self) -> Algorithm:
        from bisimetric.learned import RewardSequenceConfig, RewardSequenceNetwork

        network = RewardSequenceNetwork(**omit_none(hidden=self.hidden))
        return RewardSequenceConfig(network, **self._get_shared_arguments())

    def _build_pair_td(self, parametrisation: str) -> Algorithm:
        from bisimetric.learned import MicoNetwork, PairTDConfig

        network = MicoNetwork(parametrisation=parametrisation)
        embedding = dataclasses.replace(network.embedding, **omit_none(hidden=self.hidden))
        network = dataclasses.replace(network, embedding=embedding)
        return PairTDConfig(network, **self._get_shared_arguments())

    def _build_castro2020(self) -> Algorithm:
        from bisimetric.learned import castro2020

        network = castro2020.PairNetwork(
            **omit_none(hidden=self.hidden, output_activation=self.output_activation)
        )
        growth = omit_none(horizon_growth=self.horizon_growth)
        return castro2020.Castro2020Config(network, **self._get_shared_arguments(), **growth)

    def _get_shared_arguments(self) -> dict[str, Any]:
        return omit_none(
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            target_update_period=self.target_update_period,
            lookahead=None if self.lookahead is None else parse_lookahead(self.lookahead),
        )


@dataclasses.dataclass(frozen=True)
class LearnedTrainingOptions(TrainingOptions, AlgorithmOptions):
    """The algorithm, the network and its training."""


@dataclasses.dataclass(frozen=True)
class MicoTrainingOptions(TrainingOptions, MicoAlgorithmOptions):
    """The network and its training."""


@dataclasses.dataclass(frozen=True)
class LearnedOutputOptions:
    """Where the network and its distances are saved."""

    output: Annotated[
        Path | None, arg(aliases=["-o"], metavar="D.safetensors", help_behavior_hint="")
    ] = None
    """save the network: `bisimetric show` and LearnedDistance.load read it"""
    matrix: Annotated[Path | None, arg(metavar="D.npz", help_behavior_hint="")] = None
    """for worlds, save the distance matrix: `bisimetric show` and `explain` read it"""
    plot_training: FigureArg = None
    """save a figure of the loss over the updates, and of the errors where they are known"""


def build_arguments(training: LearnedTrainingOptions | MicoTrainingOptions) -> dict[str, Any]:
    """Return the arguments of a learned distance."""
    return training.to_arguments(training.algorithm, training.network)


def parse_lookahead(text: str) -> float:
    """Return the number of steps of a lookahead; "inf" is infinity.

    >>> parse_lookahead("10"), parse_lookahead("inf")
    (10, inf)
    """
    return math.inf if text == "inf" else parse_count("--lookahead", text, minimum=1)


def omit_none(**values: Any) -> dict[str, Any]:
    """Return the arguments that are not None.

    >>> omit_none(batch=64, learning_rate=None)
    {'batch': 64}
    """
    return {name: value for name, value in values.items() if value is not None}


def read_num_updates(
    checkpoint: Path, training: LearnedTrainingOptions | MicoTrainingOptions
) -> int:
    """Return the updates done in a checkpoint of the same algorithm."""
    from bisimetric.cli.network_report import get_algorithm
    from bisimetric.learned import files

    tensors, metadata = files.read_tensors(checkpoint, files.RUN_FORMAT, "learning run")
    algorithm = get_algorithm(metadata)
    if training.algorithm not in (None, algorithm):
        raise InputError(
            f"{checkpoint} is of --algorithm {algorithm} and here it is {training.algorithm}; "
            "resume it with the same, or start a new run."
        )
    return files.read_update_count(checkpoint, tensors)


def read_source(
    source: DataOptions,
    training: LearnedTrainingOptions | MicoTrainingOptions,
    outputs: LearnedOutputOptions,
    figures: FigureOptions,
) -> MDP | Transitions:
    """Load the MDP or the transitions after all output paths have been validated."""
    figure_paths = [outputs.plot_training, *figures.paths]
    validate_files(
        outputs.output, figure_paths, inputs=[training.resume], checkpoint=training.checkpoint
    )
    others = [outputs.output, training.checkpoint, *figure_paths]
    if outputs.matrix is not None and outputs.matrix in others:
        raise InputError(f"{outputs.matrix} is given twice; name a file for each output.")
    validate_files(outputs.matrix, inputs=[training.resume])
    for path, suffix, content in (
        (outputs.output, ".safetensors", "a network"),
        (outputs.matrix, ".npz", "a distance matrix"),
    ):
        if path is not None and path.suffix != suffix:
            raise InputError(
                f"cannot save {content} as {path}; the name must end in {suffix}, and "
                "-o d.safetensors saves the network, --matrix d.npz the distances of a world."
            )
    if read_label(Path(source.world)) is not None:
        raise InputError(
            f"{source.world} was saved by `bisimetric learned` and is no world or data; inspect it "
            f"with `bisimetric show {source.world}`, or continue a run with --resume."
        )
    data = source.read(observations=True)
    from bisimetric.mdp import MDP

    if isinstance(data, MDP):
        figures.validate_states(data)
    elif outputs.matrix is not None or figures.paths:
        raise InputError(
            f"cannot save {outputs.matrix or figures.paths[0]}: only worlds have a distance "
            f"matrix, and {source.world} holds transitions; -o d.safetensors saves the network, "
            "which compares any two observations."
        )
    return data
