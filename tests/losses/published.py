"""The values of published code in published.json, and which arguments reproduce them."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import numpy as np

DATA = json.loads((Path(__file__).parent / "published.json").read_text(encoding="utf-8"))
PAIR_LOSSES = (
    "mico",
    "reduced_mico",
    "simsr",
    "dbc",
    "normalised_dbc",
    "rap",
    "rap_root",
)
ANGLE_TOLERANCE = 1e-5
"""The published angle of equal vectors is up to 5e-5, times beta = 0.1; ours is 0."""


def get_input(name: str) -> Any:
    return np.array(DATA["inputs"][name])


def evaluate(losses: Any, name: str, embeddings: Any, convert: Any) -> Any:
    """Return the loss that the published code calls so, by a module of losses.

    Args:
        losses: `bisimetric.losses` or `bisimetric.losses.torch`.
        name: the name in published.json.
        embeddings: the embeddings, to differentiate by.
        convert: from NumPy arrays to those of the module.
    """
    size = len(DATA["inputs"]["rewards"])
    get = {each: convert(get_input(each)) for each in DATA["inputs"]}
    # Terminated transitions, which the published code ignores.
    terminated = convert(np.arange(size) % 2 == 0)
    batch = (embeddings, get["next_embeddings"], get["rewards"], terminated)
    options: dict[str, Any] = {"discount": DATA["discount"], "absorbing": False}
    if name in ("mico", "reduced_mico"):
        options["target_embeddings"] = get["target_embeddings"]
    if name in ("dbc", "normalised_dbc", "rap", "rap_root"):
        options |= {"next_scales": get["next_scales"], "permutation": get["permutation"]}
    if name.startswith("rap"):
        options |= {"reward_variances": get["reward_variances"], "squared": name == "rap"}
    if name in ("dbc", "rap", "rap_root"):
        options["per_coordinate"] = True
    if name == "normalised_dbc":
        # The norm bound 2 is reward_range / (2 (1 - discount)).
        options["reward_range"] = 4 * (1 - DATA["discount"])
    return getattr(losses, name.removesuffix("_root"))(*batch, **options)


def evaluate_deepmdp_transition(losses: Any, embeddings: Any, convert: Any) -> Any:
    return losses.deepmdp_transition(
        embeddings,
        convert(get_input("next_embeddings")),
        convert(np.ones(len(embeddings), bool)),
        predicted_scales=convert(get_input("next_scales")),
        absorbing=False,
    )


def list_cases() -> dict[str, Any]:
    """Return a function (losses, embeddings, convert) to the loss, by its name in the file."""

    def pair_loss(name: str, losses: Any, embeddings: Any, convert: Any) -> Any:
        return evaluate(losses, name, embeddings, convert)

    cases: dict[str, Any] = {name: functools.partial(pair_loss, name) for name in PAIR_LOSSES}
    return cases | {"deepmdp_transition": evaluate_deepmdp_transition}
