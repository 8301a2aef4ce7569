"""How a network was made, in words: the recipe, its numbers, and how far ahead it looks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from bisimetric.cli.report import plural

ALL = 0.99
"""The share of the horizon that counts as all of it."""

RECIPES = {
    "coupled": "coupled: the value of two copies of the world that are walked together",
    "paper": "the paper's (Castro 2020)",
}


def recipe_of(made: Mapping[str, Any]) -> str:
    """Which recipe a network followed, by how it was made; old files are all the paper's.

    >>> recipe_of({"rate": 0.9}), recipe_of({"copies": 2})
    ('paper', 'coupled')
    """
    return "coupled" if "copies" in made else "paper"


def recipe_words(made: Mapping[str, Any]) -> str:
    """The recipe of a network."""
    return RECIPES[recipe_of(made)]


def network_words(features: int, made: Mapping[str, Any]) -> str:
    """What a network is, in words.

    >>> network_words(2, {"network": [64], "keys": [0]})
    '2 features a state, hidden layers 64, key 0'
    >>> about = {"form": "metric", "groups": 64, "size": 4, "copies": 2}
    >>> network_words(2, {"network": [256, 256], "keys": [0], **about})
    'metric: 2 features a state, hidden layers 256, 256, embeddings of 64 groups of 4
    numbers an action, 2 networks, key 0'
    """
    form = made.get("form", "pairs")
    widths = ", ".join(map(str, made["network"]))
    words = [f"{plural(features, 'feature')} a state", f"hidden layers {widths}"]
    if form == "metric":
        each = f"{plural(made['groups'], 'group')} of {plural(made['size'], 'number')}"
        words.append(f"embeddings of {each} an action")
    if "copies" in made:
        words.append(plural(made["copies"], "network"))
    words.append("key " + ", ".join(map(str, made["keys"])))
    return f"{'' if form == 'pairs' else form + ': '}{', '.join(words)}"


def updates_of(made: Mapping[str, Any]) -> int:
    """How often the target was updated, the one at the start left out.

    >>> updates_of({"steps": 76, "period": 25})
    3
    """
    return max(int(made["steps"]) - 1, 0) // int(made["period"])


def beta_of(made: Mapping[str, Any]) -> float:
    """The share of the horizon that counted in the last step, in the paper's recipe.

    >>> beta_of({"steps": 1001, "period": 500, "rate": 0.9})
    0.18999999999999995
    """
    return float(1.0 - made["rate"] ** updates_of(made))


def horizon_words(made: Mapping[str, Any], discount: float) -> str:
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
    if recipe_of(made) == "coupled":
        updates = updates_of(made)
        steps = made.get("reach", 1) * (updates + 1)
        far = f"{(1 - discount**steps) * whole:.3g} of {whole:.3g} steps ahead at most"
        return f"{far}, {plural(updates, 'update')} of the target"
    beta = beta_of(made)
    return f"{1 / (1 - discount * beta):.3g} of {whole:.3g} steps ahead, beta {beta:.4g}"


def enough_steps(made: Mapping[str, Any], discount: float) -> int | None:
    """How many steps it takes for the whole horizon; None where they were taken."""
    if recipe_of(made) == "coupled":
        from bisimetric.learned import Settings

        recipe = Settings(warm_up=made["warm_up"], period=made["period"])
        wanted = recipe.settled(discount, made.get("reach", 1))
        return wanted if made["steps"] < wanted else None
    beta = beta_of(made)
    if discount == 0 or (1 - discount) >= ALL * (1 - discount * beta):
        return None
    least = (1 - (1 - discount) / ALL) / discount
    updates = 1 if made["rate"] == 0 else math.ceil(math.log(1 - least) / math.log(made["rate"]))
    return updates * int(made["period"]) + 1


def learning_words(made: Mapping[str, Any]) -> str:
    """The numbers of a recipe.

    >>> learning_words({"learning_rate": 0.001, "batch": 128, "period": 500, "rate": 0.9})
    'Adam 0.001, batch 128, period 500, rate 0.9'
    """
    adam, rest = (
        f"Adam {made['learning_rate']:g}",
        f"batch {made['batch']}, period {made['period']}",
    )
    if recipe_of(made) == "paper":
        return f"{adam}, {rest}, rate {made['rate']:g}"
    falls = " and falls to 0" if made["decay"] else ""
    return f"{adam}, which rises for {made['warm_up']:,} steps{falls}, {rest}"
