"""States as points: a picture of a distance, and features that predict values.

How well does a linear function of some features predict the values of states? Compared are
coordinates of the states by their distances, clusters by their distances (Ruan et al. 2015), powers
of row and column, and random numbers, equally many of each.

Run it with `python examples/embed_states.py`; `--full --png features.png` makes the figure of
docs/uses/embed.md.
"""

import argparse
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bisimetric import MDP, Distance, exact, planning, uses, views, worlds
from bisimetric.uses import features

Array = NDArray[np.float64]
NUMBERS = (1, 2, 4, 8, 16)
QUICK, FULL = 5, 20


def powers(mdp: MDP, number: int) -> Array:
    """Products of powers of row and column, lowest first: row, column, row^2, row * column, ..."""
    assert mdp.positions is not None
    row, column = ((each - each.mean()) / each.std() for each in mdp.positions.T)
    degrees = ((total - i, i) for total in itertools.count(1) for i in range(total + 1))
    return np.column_stack([row**i * column**j for i, j in itertools.islice(degrees, number)])


def makers(mdp: MDP) -> dict[str, Callable[[int, int], Array]]:
    """By name, the features (S, number) that a number and a key give."""

    def coordinates(d: Distance) -> Callable[[int, int], Array]:
        points = uses.embed(d, max(NUMBERS)).coordinates
        return lambda number, key: points[:, :number]

    def clusters(d: Distance) -> Callable[[int, int], Array]:
        return lambda number, key: features.build_features(d, number).values

    lax, strict = exact.lax(mdp), exact.bisimulation(mdp)
    return {
        "coordinates by d_lax": coordinates(lax),
        "coordinates by d~": coordinates(strict),
        "clusters by d_lax": clusters(lax),
        "clusters by d~": clusters(strict),
        "powers of row and column": lambda number, key: powers(mdp, number),
        "random numbers": lambda number, key: np.random.default_rng(key).normal(
            size=(mdp.num_states, number)
        ),
    }


def errors(make: Callable[[int, int], Array], values: Array, keys: int, held_out: bool) -> Array:
    """Root mean squared errors as shares of the spread of the values, (keys, numbers)."""
    found = np.empty((keys, len(NUMBERS)))
    for key, (place, number) in itertools.product(range(keys), enumerate(NUMBERS)):
        fitted = np.ones(len(values), np.bool_)
        if held_out:
            fitted = np.random.default_rng([key, 1]).permutation(len(values)) % 2 == 0
        if number + 1 > fitted.sum():
            # As many weights as states that they are fitted to: no prediction.
            found[key, place] = np.nan
            continue
        guess = features.predict_values(make(number, key), values, fitted)
        judged = ~fitted if held_out else fitted
        found[key, place] = np.sqrt(np.mean((guess - values)[judged] ** 2)) / values.std()
    return found


def compared(name: str, mdp: MDP, keys: int) -> dict[str, dict[str, Array]]:
    """The panels of one world."""
    optimal = planning.optimal_values(mdp).values
    uniform = planning.policy_values(mdp, np.full(mdp.R.shape, 1 / mdp.num_actions)).values
    made = makers(mdp)
    asked: dict[str, Any] = {
        f"{name}: V*": (optimal, False),
        f"{name}: V*, half the states unseen": (optimal, True),
        f"{name}: V of random actions": (uniform, False),
    }
    return {
        title: {label: errors(make, values, keys, held) for label, make in made.items()}
        for title, (values, held) in asked.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--full", action="store_true", help="a larger grid and more keys")
    parser.add_argument("--png", help="save the figure")
    chosen = parser.parse_args()
    side = 20 if chosen.full else 8
    grid = worlds.load("open-grid", rows=side, columns=side, obstacles=0.2)

    rooms = worlds.load("mirrored-rooms", discount=0.9)
    d = exact.bisimulation(rooms)
    for method in ("classical", "metric"):
        found = uses.embed(d, method=method)
        print(f"{found}: distances are off by {found.mean_deviation:.2f} in the mean")
    apart = float(found.value_bound(rooms.state("1,5"), rooms.state("5,5")))
    print(f"the points prove that V* of the two goals differ by at most {apart:.2f}")

    panels: dict[str, dict[str, Array]] = {}
    for name, mdp in {"mirrored-rooms": worlds.load("mirrored-rooms"), "open-grid": grid}.items():
        panels |= compared(name, mdp, FULL if chosen.full else QUICK)
    for title, lines in panels.items():
        print(f"\n{title}; error / spread with {', '.join(map(str, NUMBERS))} features")
        for label, found_errors in lines.items():
            means = found_errors.mean(axis=0)
            print(f"  {label:<25}", *(f"{m:5.2f}" for m in means[np.isfinite(means)]))
    if chosen.png:
        title = "Values predicted from features"
        figure = views.plot_prediction_error(NUMBERS, panels, columns=3, title=title)
        views.save_figure(figure, chosen.png)


if __name__ == "__main__":
    main()
