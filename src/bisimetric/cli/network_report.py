"""How a network was made, in words: the recipe, its numbers, and how far ahead it looks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from bisimetric.cli.report import format_count

FULL_HORIZON = 0.99
"""The share of the horizon that counts as all of it."""

ALGORITHM_TITLES = {
    "coupled": "coupled: the value of two copies of the world that are walked together",
    "paper": "the paper's (Castro 2020)",
}


def get_algorithm(metadata: Mapping[str, Any]) -> str:
    """Which recipe a network followed, by how it was made; old files are all the paper's.

    >>> recipe_of({"rate": 0.9}), recipe_of({"copies": 2})
    ('paper', 'coupled')
    """
    return "coupled" if "copies" in metadata else "paper"


def format_algorithm(metadata: Mapping[str, Any]) -> str:
    """The recipe of a network."""
    return ALGORITHM_TITLES[get_algorithm(metadata)]


def format_network(num_features: int, metadata: Mapping[str, Any]) -> str:
    """What a network is, in words.

    >>> network_words(2, {"network": [64], "keys": [0]})
    '2 features a state, hidden layers 64, key 0'
    >>> about = {"form": "metric", "groups": 64, "size": 4, "copies": 2}
    >>> network_words(2, {"network": [256, 256], "keys": [0], **about})
    'metric: 2 features a state, hidden layers 256, 256, embeddings of 64 groups of 4
    numbers an action, 2 networks, key 0'
    """
    form = metadata.get("form", "pairs")
    widths = ", ".join(map(str, metadata["network"]))
    words = [f"{format_count(num_features, 'feature')} a state", f"hidden layers {widths}"]
    if form == "metric":
        each = f"{format_count(metadata['groups'], 'group')} of {format_count(metadata['size'], 'number')}"
        words.append(f"embeddings of {each} an action")
    if "copies" in metadata:
        words.append(format_count(metadata["copies"], "network"))
    words.append("key " + ", ".join(map(str, metadata["keys"])))
    return f"{'' if form == 'pairs' else form + ': '}{', '.join(words)}"


def count_target_updates(metadata: Mapping[str, Any]) -> int:
    """How often the target was updated, the one at the start left out.

    >>> updates_of({"steps": 76, "period": 25})
    3
    """
    return max(int(metadata["steps"]) - 1, 0) // int(metadata["period"])


def compute_beta(metadata: Mapping[str, Any]) -> float:
    """The share of the horizon that counted in the last step, in the paper's recipe.

    >>> beta_of({"steps": 1001, "period": 500, "rate": 0.9})
    0.18999999999999995
    """
    return float(1.0 - metadata["rate"] ** count_target_updates(metadata))


def format_horizon(metadata: Mapping[str, Any], discount: float) -> str:
    """How many steps ahead count, of how many.

    In the paper's recipe 1 / (1 - discount * beta). In the coupled one each of k updates of the
    target reaches n steps further, where the network keeps up: (1 - discount^(n (k + 1))) / (1 -
    discount). Old files do not tell n, and it was 1.

    >>> horizon_words({"steps": 1001, "period": 500, "rate": 0.9}, 0.9)
    '1.21 of 10 steps ahead, beta 0.19'
    >>> horizon_words({"steps": 76, "period": 25, "copies": 2}, 0.9)
    '3.44 of 10 steps ahead at most, 3 updates of the target'
    >>> horizon_words({"steps": 76, "period": 25, "copies": 2, "reach": 10}, 0.9)
    '9.85 of 10 steps ahead at most, 3 updates of the target'
    """
    whole = 1 / (1 - discount)
    if get_algorithm(metadata) == "coupled":
        updates = count_target_updates(metadata)
        steps = metadata.get("reach", 1) * (updates + 1)
        far = f"{(1 - discount**steps) * whole:.3g} of {whole:.3g} steps ahead at most"
        return f"{far}, {format_count(updates, 'update')} of the target"
    beta = compute_beta(metadata)
    return f"{1 / (1 - discount * beta):.3g} of {whole:.3g} steps ahead, beta {beta:.4g}"


def compute_required_updates(metadata: Mapping[str, Any], discount: float) -> int | None:
    """How many steps it takes for the whole horizon; None where they were taken."""
    if get_algorithm(metadata) == "coupled":
        from bisimetric.learned import PairQConfig

        recipe = PairQConfig(warm_up=metadata["warm_up"], target_update_period=metadata["period"])
        wanted = recipe.count_settling_updates(discount, metadata.get("reach", 1))
        return wanted if metadata["steps"] < wanted else None
    beta = compute_beta(metadata)
    if discount == 0 or (1 - discount) >= FULL_HORIZON * (1 - discount * beta):
        return None
    least = (1 - (1 - discount) / FULL_HORIZON) / discount
    updates = (
        1 if metadata["rate"] == 0 else math.ceil(math.log(1 - least) / math.log(metadata["rate"]))
    )
    return updates * int(metadata["period"]) + 1


def format_optimiser(metadata: Mapping[str, Any]) -> str:
    """The numbers of a recipe.

    >>> learning_words({"learning_rate": 0.001, "batch": 128, "period": 500, "rate": 0.9})
    'Adam 0.001, batch 128, period 500, rate 0.9'
    """
    adam, rest = (
        f"Adam {metadata['learning_rate']:g}",
        f"batch {metadata['batch']}, period {metadata['period']}",
    )
    if get_algorithm(metadata) == "paper":
        return f"{adam}, {rest}, rate {metadata['rate']:g}"
    falls = " and falls to 0" if metadata["decay"] else ""
    return f"{adam}, which rises for {metadata['warm_up']:,} steps{falls}, {rest}"
