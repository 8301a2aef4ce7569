"""Reports about the metadata of learned distances: algorithm, network, horizon, optimiser."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from bisimetric._text import pluralise
from bisimetric.cli.report import Fact

if TYPE_CHECKING:
    from numpy.typing import NDArray

ALGORITHM_TITLES = {
    "pair-q": "pair Q-learning on the synchronous product MDP",
    "model-based": "exact distances of a transition model",
    "reward-sequence": "reward-sequence prediction",
    "pair-td": "temporal differences on independent pairs",
    "castro2020": "Castro (2020)",
}


NETWORK_SIZES = ("num_groups", "group_size", "num_networks", "parametrisation", "reward_head")
OPTIMISER_FIELDS = (
    "learning_rate",
    "warm_up",
    "decay",
    "batch_size",
    "target_update_period",
    "horizon_growth",
)
"""Entries of the metadata that JSON reports of networks and of optimisers."""


def get_algorithm(metadata: Mapping[str, Any]) -> str:
    """Return the algorithm of a learned distance; older files do not name it.

    >>> get_algorithm({"horizon_growth": 0.9}), get_algorithm({"num_networks": 2})
    ('castro2020', 'pair-q')
    """
    named = metadata.get("algorithm")
    if named in ALGORITHM_TITLES:
        return str(named)
    return "pair-q" if "num_networks" in metadata else "castro2020"


def describe_algorithm(metadata: Mapping[str, Any]) -> Fact:
    """Return the learning algorithm."""
    algorithm = get_algorithm(metadata)
    return Fact("algorithm", ALGORITHM_TITLES[algorithm], algorithm)


def describe_network(num_features: int, metadata: Mapping[str, Any]) -> Fact:
    """Return the architecture of a network.

    >>> describe_network(2, {"network": [64], "seeds": [0]}).text
    '2 features per state, hidden layers 64, seed 0'
    >>> sizes = {"form": "metric", "num_groups": 64, "group_size": 4, "num_networks": 2}
    >>> describe_network(2, {"network": [256, 256], "seeds": [0], **sizes}).text
    'metric: 2 features per state, hidden layers 256, 256, 64 groups of 4 coordinates per action,
    2 networks, seed 0'
    """
    form = metadata.get("form", "pairs")
    widths = ", ".join(map(str, metadata["network"]))
    words = [f"{pluralise(num_features, 'feature')} per state", f"hidden layers {widths}"]
    if form == "metric":
        groups = pluralise(metadata["num_groups"], "group")
        size = pluralise(metadata["group_size"], "coordinate")
        words.append(f"{groups} of {size} per action")
    if form == "mico":
        coordinates = metadata["num_groups"] * metadata["group_size"]
        words.append(f"{pluralise(coordinates, 'coordinate')}, {metadata['parametrisation']}")
    if "num_networks" in metadata:
        words.append(pluralise(metadata["num_networks"], "network"))
    words.append("seed " + ", ".join(map(str, metadata["seeds"])))
    value = {
        "form": form,
        "features": num_features,
        "hidden": metadata["network"],
        "seeds": metadata["seeds"],
        **{name: metadata[name] for name in NETWORK_SIZES if name in metadata},
    }
    return Fact("network", f"{'' if form == 'pairs' else form + ': '}{', '.join(words)}", value)


def describe_horizon(metadata: Mapping[str, Any], discount: float) -> Fact:
    """Return the effective horizon that the training covers.

    For Castro (2020) with n steps of lookahead and b = discount^n, it is
    (1 - b) / (1 - discount) / (1 - b beta), for n = 1 that is 1 / (1 - discount beta). Otherwise
    each of k target updates adds n steps: (1 - discount^(n (k + 1))) / (1 - discount). Older files
    lack n, which was 1.

    >>> base = {"updates": 1001, "target_update_period": 500}
    >>> describe_horizon({**base, "horizon_growth": 0.9}, 0.9).text
    '1.21 of 10 steps, beta 0.19'
    >>> base = {"updates": 76, "target_update_period": 25, "num_networks": 2}
    >>> describe_horizon({**base, "effective_lookahead": 10}, 0.9).text
    'at most 9.85 of 10 steps, 3 target updates'
    """
    full = 1 / (1 - discount)
    value: dict[str, float]
    if get_algorithm(metadata) in ("model-based", "reward-sequence"):
        return Fact("horizon", f"all of {full:.3g} steps", {"covered": full, "full": full})
    if get_algorithm(metadata) != "castro2020":
        updates = count_target_updates(metadata)
        steps = _get_lookahead(metadata) * (updates + 1)
        covered = (1 - discount**steps) * full
        text = f"at most {covered:.3g} of {full:.3g} steps"
        text = f"{text}, {pluralise(updates, 'target update')}"
        value = {"target_updates": updates}
    else:
        beta = compute_beta(metadata)
        bootstrap = discount ** _get_lookahead(metadata)
        covered = (1 - bootstrap) * full / (1 - bootstrap * beta)
        text = f"{covered:.3g} of {full:.3g} steps, beta {beta:.4g}"
        value = {"beta": beta}
    return Fact("horizon", text, {"covered": covered, "full": full, **value})


def _get_lookahead(metadata: Mapping[str, Any]) -> int:
    return int(metadata.get("effective_lookahead", 1))


def count_target_updates(metadata: Mapping[str, Any]) -> int:
    """Count the target updates, without the one at the start.

    >>> count_target_updates({"updates": 76, "target_update_period": 25})
    3
    """
    return max(int(metadata["updates"]) - 1, 0) // int(metadata["target_update_period"])


def compute_beta(metadata: Mapping[str, Any]) -> float:
    """Return beta of Castro (2020) at the last update.

    >>> compute_beta({"updates": 1001, "target_update_period": 500, "horizon_growth": 0.9})
    0.18999999999999995
    """
    return float(1.0 - metadata["horizon_growth"] ** count_target_updates(metadata))


def describe_optimiser(metadata: Mapping[str, Any]) -> Fact:
    """Return the hyperparameters of the optimiser."""
    value = {name: metadata[name] for name in OPTIMISER_FIELDS if name in metadata}
    return Fact("optimiser", format_optimiser(metadata), value)


def format_optimiser(metadata: Mapping[str, Any]) -> str:
    """Format the hyperparameters of the optimiser.

    >>> sizes = {"batch_size": 128, "target_update_period": 500}
    >>> format_optimiser({"learning_rate": 0.001, "horizon_growth": 0.9, **sizes})
    'Adam 0.001, batch size 128, target update period 500, horizon growth 0.9'
    """
    adam = f"Adam {metadata['learning_rate']:g}"
    batch_size = metadata["batch_size"]
    rest = f"batch size {batch_size}"
    if "target_update_period" in metadata:
        rest = f"{rest}, target update period {metadata['target_update_period']}"
    if get_algorithm(metadata) == "castro2020":
        return f"{adam}, {rest}, horizon growth {metadata['horizon_growth']:g}"
    decay = ", cosine decay" if metadata["decay"] else ""
    return f"{adam}, {metadata['warm_up']:,} warm-up updates{decay}, {rest}"


def describe_model(metadata: Mapping[str, Any]) -> Fact | None:
    """Return the transition model of a model-based distance, if it is one.

    >>> model = {"states": 16, "estimated_from": "repeated states", "median_visits": 96.0}
    >>> describe_model({"model": model}).text
    '16 states, from repeated states; random outcomes recorded 96 times, in the median'
    """
    model = metadata.get("model")
    if model is None:
        return None
    text = f"{pluralise(model['states'], 'state')}, from {model['estimated_from']}"
    if model.get("median_visits") is not None:
        visits = model["median_visits"]
        text = f"{text}; random outcomes recorded {visits:.0f} times, in the median"
    if model.get("untried"):
        text = f"{text}; {pluralise(model['untried'], 'untried state-action pair')}"
    return Fact("model", text, model)


def describe_loss(history: Mapping[str, NDArray[Any]]) -> Fact:
    """Return the last loss of a history, and the number of updates that it averages."""
    steps = history["step"]
    count = int(steps[-1] - (steps[-2] if len(steps) > 1 else 0))
    last = float(np.mean(history["loss"][..., -1]))
    return Fact("loss", f"{last:.3g}, the mean of the last {count:,} updates", last)
