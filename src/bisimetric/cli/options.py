"""The words of the command line: what is typed, and the objects that it names.

The policies that `--policy` names: the world's own, an optimal one, or one in a file.
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

from tyro.conf import OmitArgPrefixes, Positional, UseAppendAction, arg

from bisimetric._io import require_writable
from bisimetric.errors import ExpectedRewardWarning, InputError, MissingActionsWarning

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bisimetric.distance import Distance
    from bisimetric.mdp import MDP


SetArg = Annotated[
    list[list[str]],
    UseAppendAction,
    arg(name="set", metavar="KEY=VALUE ...", help_behavior_hint=""),
]
REPORTED_WARNINGS = (ExpectedRewardWarning, MissingActionsWarning)
"""Warnings that are said in one plain line."""


@dataclasses.dataclass(frozen=True)
class WorldOptions:
    """The MDP that a command works on."""

    world: Annotated[Positional[str], arg(metavar="WORLD_OR_FILE")]
    """as `bisimetric worlds` lists them: a name, a Gymnasium id, or a grid, .tra or .npz file"""
    discount: Annotated[
        float | None, arg(metavar="G", help_behavior_hint="(default: the world's own)")
    ] = None
    """how much the next step counts, at least 0 and below 1"""
    options: SetArg = dataclasses.field(default_factory=list)
    """options of the world, as in `--set rows=20 columns=30`; may be repeated"""

    def load(self) -> MDP:
        from bisimetric import worlds

        options = parse_options(self.options)
        with warnings.catch_warnings(record=True) as caught:
            for note in REPORTED_WARNINGS:
                warnings.simplefilter("always", note)
            mdp = worlds.load(self.world, discount=self.discount, **options)
        for each in caught:
            if issubclass(each.category, REPORTED_WARNINGS):
                print(f"note: {each.message}", file=sys.stderr)
            else:
                warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)
        return mdp

    def to_arguments(self) -> list[str]:
        """The same world in other commands."""
        rate = [] if self.discount is None else ["--discount", f"{self.discount:g}"]
        given = [word for group in self.options for word in group]
        return [self.world, *rate, *(["--set", *given] if given else [])]


@dataclasses.dataclass(frozen=True)
class AccuracyOptions:
    """How exact a table is."""

    tol: Annotated[
        float | None,
        arg(metavar="T", help_behavior_hint="(default: 1e-6; float32: what rounding allows)"),
    ] = None
    """the largest error that any distance may have, proven"""
    dtype: Literal["float64", "float32"] = "float64"
    """the numbers of the table; float32 takes half the memory"""


@dataclasses.dataclass(frozen=True)
class FigureOptions:
    """What to draw, and where to save it; the ending chooses the format."""

    origin: Annotated[str, arg(name="from", metavar="STATE")] = "0"
    """the state that --plot measures from, by name or id"""
    plot_map: Annotated[Path | None, arg(metavar="PNG", help_behavior_hint="")] = None
    """save a map of the distances from one state"""
    plot_heatmap: Annotated[Path | None, arg(metavar="PNG", help_behavior_hint="")] = None
    """save the table as a heatmap, similar states side by side"""
    plot_all_maps: Annotated[Path | None, arg(metavar="PNG", help_behavior_hint="")] = None
    """save one map for every state"""

    @property
    def paths(self) -> list[Path]:
        return [
            path
            for path in (self.plot_map, self.plot_heatmap, self.plot_all_maps)
            if path is not None
        ]

    def validate(self) -> None:
        """Refuses a file that could not be saved, before any long work starts."""
        validate_outputs(*self.paths)
        if not self.paths:
            return
        from bisimetric.views._figure import FORMATS

        for path in self.paths:
            if path.suffix.lower().removeprefix(".") not in FORMATS:
                endings = ", ".join(f".{ending}" for ending in FORMATS)
                raise InputError(f"cannot save a picture as {path}; use one of {endings}.")

    def validate_states(self, mdp: MDP) -> None:
        """Refuses a state or a world that could not be drawn."""
        mdp.state(self.origin)
        if self.plot_all_maps is not None:
            from bisimetric.views.maps import require_all_maps

            require_all_maps(mdp)

    def draw(self, distance: Distance) -> None:
        """Saves the pictures that were asked for."""
        if not self.paths:
            return
        from bisimetric import views

        if self.plot_map is not None:
            views.save_figure(views.plot_distances_from(distance, self.origin), self.plot_map)
        if self.plot_heatmap is not None:
            views.save_figure(views.plot_heatmap(distance), self.plot_heatmap)
        if self.plot_all_maps is not None:
            views.save_figure(views.plot_all_maps(distance), self.plot_all_maps)


WorldArg = OmitArgPrefixes[WorldOptions]
AccuracyArg = OmitArgPrefixes[AccuracyOptions]
FigureArg = OmitArgPrefixes[FigureOptions]
DistanceArg = Annotated[Positional[Path], arg(metavar="TABLE")]
StateArg = Annotated[Positional[str], arg(metavar="STATE")]
OutputArg = Annotated[Path | None, arg(aliases=["-o"], metavar="PATH", help_behavior_hint="")]
SamplesArg = Annotated[int | None, arg(metavar="N", help_behavior_hint="(default: none, exact)")]
OptionalSeedArg = Annotated[int | None, arg(metavar="K", help_behavior_hint="(default: 0)")]
PairsArg = Annotated[
    tuple[tuple[str, str], ...], UseAppendAction, arg(metavar="STATE STATE", help_behavior_hint="")
]
DeviceArg = Annotated[Literal["cpu", "gpu"], arg(metavar="{cpu,gpu}")]
PolicyArg = Annotated[
    str | None,
    arg(metavar="P", help_behavior_hint="(default: own where there is one, else optimal)"),
]


_RESERVED_OPTIONS = {"discount": "use --discount instead", "name": "no world has that option"}


def parse_option(word: str) -> tuple[str, str]:
    """An option of a world as it is typed.

    >>> key_and_value("rows=20")
    ('rows', '20')
    """
    key, equals, value = word.partition("=")
    if not (key.isidentifier() and equals and value):
        raise InputError(f"--set {word!r} must be KEY=VALUE, such as rows=20.")
    if key in _RESERVED_OPTIONS:
        raise InputError(f"--set {word!r}: {_RESERVED_OPTIONS[key]}.")
    return key, value


def parse_options(groups: list[list[str]]) -> dict[str, str]:
    """All options that were typed after --set.

    >>> options_of([["rows=20", "columns=30"], ["key=3"]])
    {'rows': '20', 'columns': '30', 'key': '3'}
    """
    return dict(parse_option(word) for group in groups for word in group)


def load_world(
    source: WorldOptions,
    output: Path | None,
    figures: FigureOptions | None = None,
    pairs: PairsArg = (),
) -> MDP:
    """The world, once every place to save to and every state is known to be good."""
    paths = [path for path in (output, *(figures.paths if figures else [])) if path]
    validate_outputs(*paths)
    reject_overwriting(paths, source.world)
    if pairs and paths:
        raise InputError(f"--pairs makes no table to save in {paths[0]}; leave one of them out.")
    if figures:
        figures.validate()
    mdp = source.load()
    if figures:
        figures.validate_states(mdp)
    for state in itertools.chain(*pairs):
        mdp.state(state)
    return mdp


COUNT_FORMAT = "a whole number such as 2000000, 2_000_000, 2e6 or 2M"


def parse_count(option: str, text: str, *, minimum: int = 0) -> int:
    """A large number as it is typed.

    >>> [count("--steps", word) for word in ("250", "2_000_000", "2e6", "1.5M", "20k")]
    [250, 2000000, 2000000, 1500000, 20000]
    """
    digits, factor = text, 1
    for ending, size in (("k", 10**3), ("M", 10**6), ("G", 10**9)):
        if text.endswith(ending):
            digits, factor = text.removesuffix(ending), size
    try:
        number = decimal.Decimal(digits) * factor
        # Compared first: the whole number of 1e999999 would fill the memory.
        if minimum <= number < 2**62 and number == int(number):
            return int(number)
    except ArithmeticError:
        pass
    raise InputError(
        f"{option} is {text or 'empty'} and must be {COUNT_FORMAT}, at least {minimum}."
    )


def validate_outputs(*paths: Path | None) -> None:
    """Refuses places that could not be written, before any long work starts."""
    given = [path for path in paths if path is not None]
    for index, path in enumerate(given):
        require_writable(path)
        if any(path.resolve() == other.resolve() for other in given[:index]):
            raise InputError(f"{path} is given twice; name a file for each output.")


def reject_overwriting(outputs: Iterable[Path | None], *inputs: str | Path | None) -> None:
    """Refuses to write over what is read."""
    read = {Path(path).resolve() for path in inputs if path is not None and Path(path).is_file()}
    for path in outputs:
        if path is not None and path.resolve() in read:
            raise InputError(f"{path} is read by this command; name another file to write to.")


def program_name() -> str:
    """How to call this command line again from the same place."""
    if shutil.which("bisimetric"):
        return "bisimetric"
    called = Path(sys.argv[0])
    return str(called) if called.name == "bisimetric" else "bisimetric"


def resolve_policy(mdp: MDP, choice: str | None) -> tuple[NDArray[Any], str]:
    """The policy that `--policy` means, and how to call it."""
    if choice is None:
        choice = "optimal" if mdp.policy is None else "own"
    if choice == "own":
        if mdp.policy is None:
            raise InputError(
                "--policy own: this world comes with no policy; use `--policy optimal` or a file."
            )
        return mdp.policy, "the world's own"
    if choice == "optimal":
        from bisimetric import planning

        return planning.greedy_policy(mdp), "optimal"
    return append_terminal_action(mdp, read_policy(Path(choice), "'own', 'optimal', or ")), choice


def resolve_data_policy(choice: str | None) -> tuple[NDArray[Any] | None, str]:
    """The policy that `--policy` picks the steps of data by, and how to call it."""
    if choice is None:
        return None, "that of the data"
    if choice in ("own", "optimal"):
        raise InputError(
            f"--policy {choice}: data has no such policy; give a .npy or .txt file with one action "
            "a state, or leave it out where one policy made the data."
        )
    return read_policy(Path(choice)), choice


def append_terminal_action(mdp: MDP, policy: NDArray[Any]) -> NDArray[Any]:
    """Actions of all states but the end of episodes with one for the end, where it has any."""
    import numpy as np

    ends = mdp.names is not None and mdp.names[-1] == "end"
    if not (ends and policy.shape == (mdp.num_states - 1,)):
        return policy
    return np.append(policy, mdp.action_mask[-1].argmax())


def read_policy(path: Path, alternatives: str = "") -> NDArray[Any]:
    """The numbers of a policy file, whole ones as such; `others` may be given in its place."""
    import numpy as np

    from bisimetric._io import read_npy

    if not path.is_file():
        raise InputError(
            f"--policy {path}: there is no such file; use {alternatives}a .npy or .txt file with one "
            "action a state."
        )
    try:
        if path.suffix == ".npy":
            return _to_integers(read_npy(path))
        with warnings.catch_warnings():
            # An empty file is an array of no actions: the check of policies says it better.
            warnings.simplefilter("ignore", UserWarning)
            return _to_integers(np.loadtxt(path, ndmin=1))
    except (ValueError, EOFError) as error:
        error = ValueError(" ".join(str(error).split()))
        raise InputError(
            f"--policy {path} cannot be read as numbers, one action a state ({error})."
        ) from None


def _to_integers(values: NDArray[Any]) -> NDArray[Any]:
    """Floats that are all whole as integers, others as they are."""
    import numpy as np

    if values.dtype.kind == "f" and (np.abs(values.astype(np.float64)) < 2**31).all():
        return values.astype(np.int64) if (values % 1 == 0).all() else values
    return values
