"""Embed states by a distance, and predict values from features.

Compares linear value functions of MDS coordinates, of k-centre clusters (Ruan et al. 2015), of
powers of row and column, and of random numbers, equally many of each.

Run it with `python examples/embed_states.py`; `--full --png features.png` draws the figure of
docs/how-to/embed.md.
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
    """Return products of powers of row and column: row, column, row^2, row * column, ..."""
    assert mdp.positions is not None
    row, column = ((each - each.mean()) / each.std() for each in mdp.positions.T)
    degrees = ((total - i, i) for total in itertools.count(1) for i in range(total + 1))
    return np.column_stack([row**i * column**j for i, j in itertools.islice(degrees, number)])


def build_feature_makers(mdp: MDP) -> dict[str, Callable[[int, int], Array]]:
    """Return, by name, functions of a number and a seed that return features (S, number)."""

    def coordinates(d: Distance) -> Callable[[int, int], Array]:
        points = uses.embed(d, max(NUMBERS)).coordinates
        return lambda number, seed: points[:, :number]

    def clusters(d: Distance) -> Callable[[int, int], Array]:
        return lambda number, seed: features.build_features(d, number).values

    lax, strict = exact.lax(mdp), exact.bisimulation(mdp)
    return {
        "coordinates by d_lax": coordinates(lax),
        "coordinates by d~": coordinates(strict),
        "clusters by d_lax": clusters(lax),
        "clusters by d~": clusters(strict),
        "powers of row and column": lambda number, seed: powers(mdp, number),
        "random numbers": lambda number, seed: np.random.default_rng(seed).normal(
            size=(mdp.num_states, number)
        ),
    }


def measure_errors(
    make: Callable[[int, int], Array], values: Array, num_seeds: int, held_out: bool
) -> Array:
    """Return root mean squared errors over the spread of the values, (seeds, numbers)."""
    errors = np.empty((num_seeds, len(NUMBERS)))
    for seed, (column, number) in itertools.product(range(num_seeds), enumerate(NUMBERS)):
        fitted = np.ones(len(values), np.bool_)
        if held_out:
            fitted = np.random.default_rng([seed, 1]).permutation(len(values)) % 2 == 0
        if number + 1 > fitted.sum():
            # As many weights as fitted states: no prediction.
            errors[seed, column] = np.nan
            continue
        predicted = features.predict_values(make(number, seed), values, fitted)
        tested = ~fitted if held_out else fitted
        errors[seed, column] = np.sqrt(np.mean((predicted - values)[tested] ** 2)) / values.std()
    return errors


def compare_features(name: str, mdp: MDP, num_seeds: int) -> dict[str, dict[str, Array]]:
    """Return the panels of one environment."""
    optimal = planning.optimal_values(mdp).values
    uniform = planning.policy_values(mdp, np.full(mdp.R.shape, 1 / mdp.num_actions)).values
    makers = build_feature_makers(mdp)
    targets: dict[str, Any] = {
        f"{name}: V*": (optimal, False),
        f"{name}: V*, half the states unseen": (optimal, True),
        f"{name}: V of random actions": (uniform, False),
    }
    return {
        title: {
            label: measure_errors(make, values, num_seeds, held) for label, make in makers.items()
        }
        for title, (values, held) in targets.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--full", action="store_true", help="a larger grid and more seeds")
    parser.add_argument("--png", help="save the figure")
    arguments = parser.parse_args()
    side = 20 if arguments.full else 8
    grid = worlds.load("open-grid", rows=side, columns=side, obstacles=0.2)

    rooms = worlds.load("mirrored-rooms", discount=0.9)
    d = exact.bisimulation(rooms)
    for method in ("classical", "metric"):
        embedding = uses.embed(d, method=method)
        print(f"{embedding}: mean deviation {embedding.mean_deviation:.2f}")
    bound = float(embedding.value_bound(rooms.state("1,5"), rooms.state("5,5")))
    print(f"the points prove that V* of the two goals differ by at most {bound:.2f}")

    panels: dict[str, dict[str, Array]] = {}
    for name, mdp in {"mirrored-rooms": worlds.load("mirrored-rooms"), "open-grid": grid}.items():
        panels |= compare_features(name, mdp, FULL if arguments.full else QUICK)
    for title, lines in panels.items():
        print(f"\n{title}; error / spread with {', '.join(map(str, NUMBERS))} features")
        for label, errors in lines.items():
            means = errors.mean(axis=0)
            print(f"  {label:<25}", *(f"{m:5.2f}" for m in means[np.isfinite(means)]))
    if arguments.png:
        title = "Values predicted from features"
        figure = views.plot_prediction_error(NUMBERS, panels, columns=3, title=title)
        views.save_figure(figure, arguments.png)


if __name__ == "__main__":
    main()
