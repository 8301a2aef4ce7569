"""Options that several commands share, and the objects that they name.

MDPs, data, accuracy, figures, policies, and the checks of files before any long computation.
"""

from __future__ import annotations

import dataclasses
import decimal
import itertools
import shutil
import sys
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import Positional, UseAppendAction, arg

from bisimetric._io import require_writable
from bisimetric.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bisimetric.distance import Distance
    from bisimetric.mdp import MDP
    from bisimetric.transitions import Transitions

SetArg = Annotated[
    list[list[str]],
    UseAppendAction,
    arg(name="set", metavar="KEY=VALUE ...", help_behavior_hint=""),
]
DistanceArg = Annotated[Positional[Path], arg(metavar="DISTANCE")]
StateArg = Annotated[Positional[str], arg(metavar="STATE")]
OutputArg = Annotated[Path | None, arg(aliases=["-o"], metavar="PATH", help_behavior_hint="")]
FigureArg = Annotated[Path | None, arg(metavar="PNG", help_behavior_hint="")]
SeedArg = Annotated[int, arg(metavar="K")]
NumSeedsArg = Annotated[int, arg(aliases=["--seeds"], metavar="N")]
DiscountArg = Annotated[float, arg(aliases=["--gamma"], metavar="G")]
PairsArg = Annotated[
    tuple[tuple[str, str], ...], UseAppendAction, arg(metavar="STATE STATE", help_behavior_hint="")
]
NormalisedTolArg = Annotated[float | None, arg(metavar="T", help_behavior_hint="")]
DeviceArg = Annotated[
    Literal["cpu", "gpu"] | None,
    arg(metavar="{cpu,gpu}", help_behavior_hint="(default: gpu where there is one)"),
]
PolicyArg = Annotated[
    str | None,
    arg(metavar="P", help_behavior_hint="(default: own where there is one, else optimal)"),
]
RESERVED_OPTIONS = {"discount": "use --discount instead", "name": "no world has that option"}
COUNT_FORMAT = "a whole number such as 2000000, 2_000_000, 2e6 or 2M"


@dataclasses.dataclass(frozen=True)
class WorldOptions:
    """The MDP that a command works on."""

    world: Annotated[Positional[str], arg(metavar="WORLD_OR_FILE")]
    """as listed by `bisimetric worlds`: a name, a Gymnasium id, or a grid, .tra, .drn, .npz file"""
    discount: Annotated[
        float | None,
        arg(aliases=["--gamma"], metavar="G", help_behavior_hint="(default: the world's own)"),
    ] = None
    """discount factor, at least 0 and below 1"""
    options: SetArg = dataclasses.field(default_factory=list)
    """options of the world, as in `--set rows=20 columns=30`; may be repeated"""

    def load(self) -> MDP:
        """Load the MDP."""
        from bisimetric import worlds

        return worlds.load(self.world, discount=self.discount, **parse_options(self.options))

    def to_arguments(self) -> list[str]:
        """Return the command-line arguments that name the same MDP."""
        discount = [] if self.discount is None else ["--discount", f"{self.discount:g}"]
        options = [word for group in self.options for word in group]
        return [self.world, *discount, *(["--set", *options] if options else [])]


@dataclasses.dataclass(frozen=True)
class DataOptions(WorldOptions):
    """The MDP or the transitions that pairs of transitions are sampled from."""

    world: Annotated[Positional[str], arg(metavar="WORLD_OR_DATA")]
    """a deterministic world, as listed by `bisimetric worlds`, or a .npz file of transitions"""
    discount: Annotated[
        float | None,
        arg(
            aliases=["--gamma"],
            metavar="G",
            help_behavior_hint="(default: the world's own; 0.99 for data)",
        ),
    ] = None
    """discount factor, at least 0 and below 1"""

    def read(self, *, observations: bool = False) -> MDP | Transitions:
        """Load the MDP, or the transitions, with their observations or without."""
        from bisimetric.transitions import Transitions
        from bisimetric.transitions.files import is_transitions_file

        if not is_transitions_file(self.world):
            return self.load()
        if self.options:
            raise InputError(f"{self.world} holds transitions, which --set cannot change.")
        return Transitions.load(self.world, observations=observations)


@dataclasses.dataclass(frozen=True)
class AccuracyOptions:
    """The accuracy of a distance matrix."""

    tol: Annotated[
        float | None,
        arg(metavar="T", help_behavior_hint="(default: 1e-6; float32: the rounding bound)"),
    ] = None
    """proven bound on the error of each distance"""
    normalised_tol: NormalisedTolArg = None
    """in place of --tol: bound on the error of (1 - discount) * d, for discounts near 1"""
    dtype: Literal["float64", "float32"] = "float64"
    """type of the matrix entries; float32 takes half the memory"""

    @property
    def tolerance(self) -> dict[str, Any]:
        """The arguments of a distance that bound its error."""
        return {"tol": self.tol, "normalised_tol": self.normalised_tol}


@dataclasses.dataclass(frozen=True)
class FigureOptions:
    """Figures of a distance matrix; the suffix of the path selects the format."""

    origin: Annotated[str, arg(name="from", metavar="STATE")] = "0"
    """the state that --plot-map measures from, by name or id"""
    plot_map: FigureArg = None
    """save a map of the distances from one state"""
    plot_heatmap: FigureArg = None
    """save the matrix as a heatmap, similar states side by side"""
    plot_all_maps: FigureArg = None
    """save one map for each state"""
    normalise: bool = False
    """draw (1 - discount) * d: distances in units of reward per step, up to the reward range"""
    norm: Literal["auto", "linear", "log", "quantile"] = "auto"
    """colour scale; auto: linear unless a few states dominate it"""

    @property
    def paths(self) -> list[Path]:
        """The figures to be saved."""
        paths = (self.plot_map, self.plot_heatmap, self.plot_all_maps)
        return [path for path in paths if path is not None]

    def validate_states(self, mdp: MDP) -> None:
        """Reject a state or a world that cannot be drawn."""
        mdp.state(self.origin)
        if self.plot_all_maps is not None:
            from bisimetric.views.maps import require_all_maps

            require_all_maps(mdp)

    def draw(self, distance: Distance) -> None:
        """Save the requested figures."""
        if not self.paths:
            return
        from bisimetric import views

        scale: dict[str, Any] = {"normalise": self.normalise, "norm": self.norm}
        if self.plot_map is not None:
            figure = views.plot_distances_from(distance, self.origin, **scale)
            views.save_figure(figure, self.plot_map)
        if self.plot_heatmap is not None:
            views.save_figure(views.plot_heatmap(distance, **scale), self.plot_heatmap)
        if self.plot_all_maps is not None:
            views.save_figure(views.plot_all_maps(distance, **scale), self.plot_all_maps)


def parse_option(text: str) -> tuple[str, str]:
    """Parse one option of a world.

    >>> parse_option("rows=20")
    ('rows', '20')
    """
    key, equals, value = text.partition("=")
    if not (key.isidentifier() and equals and value):
        raise InputError(f"--set {text!r} must be KEY=VALUE, such as rows=20.")
    if key in RESERVED_OPTIONS:
        raise InputError(f"--set {text!r}: {RESERVED_OPTIONS[key]}.")
    return key, value


def parse_options(groups: Iterable[Iterable[str]]) -> dict[str, str]:
    """Parse all options that follow --set.

    >>> parse_options([["rows=20", "columns=30"], ["seed=3"]])
    {'rows': '20', 'columns': '30', 'seed': '3'}
    """
    return dict(parse_option(text) for group in groups for text in group)


def parse_count(option: str, text: str, *, minimum: int = 0) -> int:
    """Parse a large whole number.

    >>> [parse_count("--steps", text) for text in ("250", "2_000_000", "2e6", "1.5M", "20k")]
    [250, 2000000, 2000000, 1500000, 20000]
    """
    digits, factor = text, 1
    for suffix, size in (("k", 10**3), ("M", 10**6), ("G", 10**9)):
        if text.endswith(suffix):
            digits, factor = text.removesuffix(suffix), size
    try:
        number = decimal.Decimal(digits) * factor
        # Compared before the conversion: int(1e999999) would fill the memory.
        if minimum <= number < 2**62 and number == int(number):
            return int(number)
    except ArithmeticError:
        pass
    raise InputError(
        f"{option} is {text or 'empty'} and must be {COUNT_FORMAT}, at least {minimum}."
    )


def parse_optional_count(option: str, text: str | None, *, minimum: int = 1) -> int | None:
    """Parse a large whole number, or None where the option is absent."""
    return None if text is None else parse_count(option, text, minimum=minimum)


def load_world(
    source: WorldOptions,
    output: Path | None,
    figures: FigureOptions | None = None,
    pairs: PairsArg = (),
) -> MDP:
    """Load an MDP after all output paths and states have been validated."""
    figure_paths = figures.paths if figures else []
    validate_files(output, figure_paths, inputs=[source.world])
    if pairs and (output or figure_paths):
        path = output or figure_paths[0]
        raise InputError(f"--pairs computes no matrix to save in {path}; leave one of them out.")
    mdp = source.load()
    if figures:
        figures.validate_states(mdp)
    for state in itertools.chain(*pairs):
        mdp.state(state)
    return mdp


def validate_files(
    output: Path | None,
    figures: Iterable[Path | None] = (),
    *,
    content: str = "",
    suffix: str | None = None,
    inputs: Iterable[str | Path | None] = (),
    checkpoint: Path | None = None,
) -> None:
    """Reject paths that cannot be written, before any long computation.

    Args:
        output: the main output; its name must end in `suffix`, where that is given.
        figures: figures, whose suffixes must be known formats.
        content: what the output holds, for the message.
        suffix: the required end of the output's name.
        inputs: files that are read and must not be overwritten.
        checkpoint: a checkpoint, which may replace the one that is resumed.
    """
    figure_paths = [path for path in figures if path is not None]
    outputs = [path for path in (output, *figure_paths) if path is not None]
    written = [*outputs, *([] if checkpoint is None else [checkpoint])]
    for index, path in enumerate(written):
        require_writable(path)
        if any(path.resolve() == other.resolve() for other in written[:index]):
            raise InputError(f"{path} is given twice; name a file for each output.")
    read = {Path(path).resolve() for path in inputs if path is not None and Path(path).is_file()}
    for path in outputs:
        if path.resolve() in read:
            raise InputError(f"{path} is read by this command; name another file to write to.")
    if output is not None and suffix is not None and output.suffix != suffix:
        raise InputError(f"cannot save {content} as {output}; the name must end in {suffix}.")
    if figure_paths:
        from bisimetric.views._figure import FORMATS

        for path in figure_paths:
            if path.suffix.lower().removeprefix(".") not in FORMATS:
                known = ", ".join(f".{name}" for name in FORMATS)
                raise InputError(f"cannot save a figure as {path}; use one of {known}.")


def program_name() -> str:
    """Return how to call this program again from the same place."""
    if shutil.which("bisimetric"):
        return "bisimetric"
    path = Path(sys.argv[0])
    return str(path) if path.name == "bisimetric" else "bisimetric"


def resolve_policy(mdp: MDP, choice: str | None) -> tuple[NDArray[Any], str]:
    """Return the policy that `--policy` selects for an MDP, and its name."""
    if choice is None:
        choice = "optimal" if mdp.policy is None else "own"
    if choice == "own":
        if mdp.policy is None:
            raise InputError(
                "--policy own: this world has no policy; use `--policy optimal` or a file."
            )
        return mdp.policy, "the world's own"
    if choice == "optimal":
        from bisimetric import planning

        return planning.greedy_policy(mdp), "optimal"
    return append_terminal_action(mdp, read_policy(Path(choice), "'own', 'optimal', or ")), choice


def resolve_data_policy(choice: str | None) -> tuple[NDArray[Any] | None, str]:
    """Return the policy by which `--policy` selects transitions, and its name."""
    if choice is None:
        return None, "that of the data"
    if choice in ("own", "optimal"):
        raise InputError(
            f"--policy {choice}: data has no such policy; give a .npy or .txt file with one action "
            "per state, or leave it out where one policy collected the data."
        )
    return read_policy(Path(choice)), choice


def append_terminal_action(mdp: MDP, policy: NDArray[Any]) -> NDArray[Any]:
    """Append an action of the terminal state to a policy of all other states."""
    import numpy as np

    has_terminal = mdp.names is not None and mdp.names[-1] == "end"
    if not (has_terminal and policy.shape == (mdp.num_states - 1,)):
        return policy
    return np.append(policy, mdp.action_mask[-1].argmax())


def read_policy(path: Path, alternatives: str = "") -> NDArray[Any]:
    """Read a policy from a file; `alternatives` are other values of --policy, for the message."""
    import numpy as np

    from bisimetric._io import read_npy

    if not path.is_file():
        raise InputError(
            f"--policy {path}: there is no such file; use {alternatives}a .npy or .txt file with "
            "one action per state."
        )
    try:
        if path.suffix == ".npy":
            return _to_integers(read_npy(path))
        with warnings.catch_warnings():
            # An empty file is an array without actions: the validation of policies reports it.
            warnings.simplefilter("ignore", UserWarning)
            return _to_integers(np.loadtxt(path, ndmin=1))
    except (ValueError, EOFError) as error:
        reason = " ".join(str(error).split())
        raise InputError(
            f"--policy {path} cannot be read as numbers, one action per state ({reason})."
        ) from None


def _to_integers(values: NDArray[Any]) -> NDArray[Any]:
    """Convert floats that are all whole numbers to integers."""
    import numpy as np

    if values.dtype.kind == "f" and (np.abs(values.astype(np.float64)) < 2**31).all():
        return values.astype(np.int64) if (values % 1 == 0).all() else values
    return values
