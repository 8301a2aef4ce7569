"""What the commands say of networks: how they learned, how good they are, and what is in a file."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bisimetric.cli.experience import deterministic, size
from bisimetric.cli.made import (
    enough_steps,
    horizon_words,
    learning_words,
    network_words,
    recipe_words,
)
from bisimetric.cli.report import TITLES, counted, largest_line, plural
from bisimetric.mdp import MDP

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bisimetric.cli.learning import Results
    from bisimetric.cli.truth import Truth
    from bisimetric.distance import Distance
    from bisimetric.learned import Learned, Quality
    from bisimetric.learned.losses import Kind
    from bisimetric.transitions import Transitions


@dataclasses.dataclass(frozen=True, eq=False)
class Course:
    """What a network was taught from, and for how long.

    Attributes:
        source: the world or the data.
        policy, called: the actions of the policy, and how to call it; None for d~.
        torn: whether steps are known to have several outcomes.
        truth: the exact distance, where it is known.
        steps: how many were asked for.
        before: how many of them a resumed run had taken.
        noise: of the states' features.
    """

    source: MDP | Transitions
    policy: NDArray[Any] | None
    called: str | None
    torn: bool
    truth: Truth | None
    steps: int
    before: int
    noise: float

    def quality(self, found: Learned) -> Quality:
        """That of a network on what it was taught from."""
        from bisimetric.learned import of_mdp, of_transitions

        if isinstance(self.source, MDP):
            shaken = {"noise": self.noise, "most": 3 * self.noise} if self.noise else {}
            states = of_mdp(found.kind, self.source, self.policy, scale=found.scale, **shaken)
            return found.quality(states)
        return found.quality(
            of_transitions(found.kind, self.source, self.policy, scale=found.scale)
        )


def learned_lines(found: Learned, table: Distance | None, course: Course) -> Iterator[str]:
    """The source, the network, how it learned, and how far it is from what it should be."""
    from bisimetric.learned.distance import SOME

    made, source = found.made, course.source
    if isinstance(source, MDP):
        yield f"world      {made['world']}: {counted(source)}"
    else:
        yield f"data       {made['world']}: {size(source)}, discount {found.discount:g}"
    yield f"distance   {TITLES[found.kind]}: an approximation, nothing is proven"
    if course.called is not None:
        yield f"policy     {course.called}"
    if course.torn:
        yield (
            "branches   some steps have several outcomes: the loss averages over pairs of them, "
            "and distances come out too large"
        )
    yield f"recipe     {recipe_words(made)}"
    yield f"network    {network_words(found.scale.features, made)}"
    yield from _steps_lines(found, course)
    yield f"horizon    {horizon_words(made, found.discount)}"
    yield loss_line(found.history)
    yield from _truth_lines(found, course)
    quality = course.quality(found)
    if table is not None:
        yield largest_line(table)
    else:
        yield f"largest    {quality.largest:.3g}, among the pairs of {SOME} drawn steps"
    yield from quality_lines(found.kind, quality, SOME, made.get("form", "pairs"))
    if quality.largest == 0 and found.history["loss"][-1] > 0:
        yield (
            "dead       psi is 0 for all pairs, where a ReLU has no slope; try another --key, a "
            "smaller --learning-rate, or more --hidden units"
        )


def _steps_lines(found: Learned, course: Course) -> Iterator[str]:
    made = found.made
    taken, seconds = made["steps"] - course.before, made["seconds"]
    speed = f"{seconds:.3g} s, {taken / max(seconds, 1e-9):,.0f} a second"
    run = f"{taken:,} of them in this run, in {speed}" if course.before else f"in {speed}"
    early = ", stopped early: the loss fell no more" if made["steps"] < course.steps else ""
    yield f"steps      {made['steps']:,}, {run}{early}"
    yield f"device     {made['device']}"


def loss_line(history: Mapping[str, NDArray[Any]]) -> str:
    """The last loss of a history, and over how many steps it is the mean."""
    steps = history["step"]
    over = int(steps[-1] - (steps[-2] if len(steps) > 1 else 0))
    last = float(np.mean(history["loss"][..., -1]))
    return f"loss       {last:.3g}, the mean of the last {over:,} steps"


def _truth_lines(found: Learned, course: Course) -> Iterator[str]:
    truth, source = course.truth, course.source
    if truth is None or found.points is None:
        return
    import jax.numpy as jnp

    from bisimetric.learned.measures import errors

    values, exact, among = found.values, truth.distance.values, ""
    if not isinstance(source, MDP):
        # Of the others nobody knows what they do.
        left = np.unique(np.asarray(source.states))
        cells = np.ix_(left, left)
        values, exact = values[cells], exact[cells]
        among = "" if truth.whole else f", among the {plural(len(left), 'state')} that were left"
    far = {
        name: float(each) for name, each in errors(jnp.asarray(exact), jnp.asarray(values)).items()
    }
    yield (
        f"truth      largest error {far['error']:.3g} where the exact distances reach "
        f"{float(exact.max()):.3g}{among}"
    )
    yield f"           normalised {far['normalised']:.3g}, correlation {far['correlation']:.3g}"


def quality_lines(kind: Kind, quality: Quality, steps: int, form: str) -> Iterator[str]:
    """How far a network is from being a distance, and from its equation, in words.

    Some networks are symmetric, or metrics, whatever their weights, and the words say so.
    """
    metric = ", by construction" if form == "metric" else ""
    symmetric = ", by construction" if form == "free" else metric
    wanted = metric or ("" if kind == "mico" else ", and should be 0")
    rounded = metric and f"{metric} but for rounding"
    yield f"judged     on all pairs of {steps} drawn steps, where psi is the network:"
    far = f"{quality.symmetry:.3g} at most{symmetric}"
    yield f"  symmetry   psi(x, y) and psi(y, x) differ by {far}"
    yield f"  identity   psi(x, x) is {quality.identity:.3g} at most{wanted}"
    yield f"  triangle   a way round is shorter by {quality.triangle:.3g} at most{rounded}"
    yield f"  residual   psi is off its equation by {quality.residual:.3g} on average"


def next_lines(
    found: Learned, table: Distance | None, results: Results, program: str, solve: Sequence[str]
) -> Iterator[str]:
    """What to try after a network has learned; `solve` finds the exact distance, where it can."""
    wanted = enough_steps(found.made, found.discount)
    if wanted is not None:
        yield f"next: --steps {wanted:,} or more, or a smaller --period, for the whole horizon"
    if results.output is None:
        yield "next: add -o d.safetensors to keep the network"
    else:
        yield f'next: in Python, d = bisimetric.learned.Learned.load("{results.output}"); d(x, y)'
    if table is not None and results.table is not None:
        from bisimetric.cli.report import farthest

        s, t = map(table.mdp.name, farthest(table))
        yield "next: " + shlex.join([program, "explain", str(results.table), s, t])
    elif table is not None:
        yield "next: add --table d.npz for `bisimetric explain` and `bisimetric show`"
    if solve:
        yield f"next: {shlex.join(solve)}, which is exact"


def title(kind: str, discount: float, made: Mapping[str, Any]) -> str:
    """What a picture of a training shows.

    >>> title("on_policy", 0.99, {"world": "data/cart.npz", "keys": [3]})
    'Learning d^pi, the on-policy distance, from cart.npz: discount 0.99, key 3'
    """
    source = f", from {Path(made['world']).name}" if "world" in made else ""
    keys = made["keys"]
    seeds = f"key {keys[0]}" if len(keys) == 1 else plural(len(keys), "key")
    return f"Learning {TITLES[kind]}{source}: discount {discount:g}, {seeds}"


@dataclasses.dataclass(frozen=True, eq=False)
class Saved:
    """What a file of `learned` holds: a distance, or a run to go on with.

    Attributes:
        what: in words.
        made: how it was made.
        features: of a state, those of the end included.
        history: what was measured on the way.
    """

    path: Path
    what: str
    made: dict[str, Any]
    features: int
    history: dict[str, NDArray[np.float64]]

    @property
    def title(self) -> str:
        return title(self.made["kind"], self.made["discount"], self.made)


def read(path: Path, label: Mapping[str, Any]) -> Saved:
    """A file of `learned` by its label."""
    from bisimetric.learned import files
    from bisimetric.learned.distance import Learned

    if label["format"] == files.RUN:
        tensors, about = files.read(path, files.RUN, "learning run")
        made = {**about, "steps": files.steps_of(path, tensors)}
        what = "a training run to go on with"
        features = about.get("features")
        if features is None:
            weights = tensors.get(".parameters[0]['weights']")
            features = 0 if weights is None or weights.ndim < 2 else weights.shape[1] // 2
        history = files.history_in(tensors)
    else:
        found = Learned.load(path)
        made, what = found.made, "a distance that a network learned"
        features = found.scale.features
        history = found.history
    return Saved(path, what, made, features, history)


def file_lines(found: Saved) -> Iterator[str]:
    """What a file of `learned` holds, in words."""
    made, history = found.made, found.history
    yield f"file       {found.path}: {found.what}"
    yield f"distance   {TITLES[made['kind']]}: an approximation, nothing is proven"
    if "world" in made:
        yield f"from       {made['world']}" + (f": {made['data']}" if "data" in made else "")
    yield f"discount   {made['discount']:g}"
    yield f"recipe     {recipe_words(made)}"
    yield f"network    {network_words(found.features, made)}"
    yield f"steps      {made['steps']:,}"
    yield f"horizon    {horizon_words(made, made['discount'])}"
    if len(history.get("step", ())):
        yield loss_line(history)
    if "error" in history:
        far = [float(np.mean(history[name][..., -1])) for name in ("error", "normalised")]
        yield f"truth      largest error {far[0]:.3g}, normalised {far[1]:.3g}, at the end"
    yield f"learning   {learning_words(made)}"
    for key in ("device", "bisimetric", "jax"):
        if key in made:
            yield f"{key:<10} {made[key]}"


def branches(kind: Kind, data: Transitions, policy: NDArray[Any] | None) -> bool:
    """Whether two steps of one state, with the same action for d~, are known to have differed.

    For MICo that is as it should be.
    """
    if data.states is None or kind == "mico":
        return False
    if kind == "on_policy":
        if policy is not None:
            data = data[np.asarray(policy)[data.states] == data.actions]
        data = dataclasses.replace(
            data, actions=np.zeros(len(data), np.int64), num_actions=1, action_names=None
        )
    return not deterministic(data)
