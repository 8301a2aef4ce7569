"""Draw figures 3 and 4 of the paper: python docs/reports/paper/diagrams.py.

`network.png`: the network on two states and how its target is computed. `densities.png`: the
GridWorld and the density of its noisy states, from samples of the noise that training uses.
"""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import FancyBboxPatch

from bisimetric import worlds
from bisimetric.paper.aggregation import sample_points

FOLDER = Path(__file__).parent
BLUE, ORANGE, GREY = "#0072b2", "#d55e00", "#666666"


def draw_box(axes, x, y, text, colour=GREY, width=1.5, height=0.62):
    """Draw a box around a text, centred at (x, y)."""
    corner = (x - width / 2, y - height / 2)
    style = "round,pad=0.02,rounding_size=0.08"
    axes.add_patch(
        FancyBboxPatch(corner, width, height, boxstyle=style, edgecolor=colour, facecolor="white")
    )
    axes.text(x, y, text, ha="center", va="center", fontsize=9, color="black")


def draw_arrow(axes, start, end, colour=GREY):
    """Draw an arrow between two points."""
    style = {"arrowstyle": "-|>", "color": colour, "shrinkA": 0, "shrinkB": 0, "linewidth": 1.1}
    axes.annotate("", end, start, arrowprops=style)


def draw_network():
    """Draw the network, its target network, and the loss."""
    figure, axes = plt.subplots(figsize=(8.2, 3.9), layout="constrained")
    # Rows: the online network on two states, the target network on their successors and on them.
    rows = (
        (2.9, r"$\phi(s)$", r"$\phi(t)$", "dense, 729, ReLU\ndense, 1, ReLU", BLUE),
        (1.55, r"$\phi(N(s, a))$", r"$\phi(N(t, a))$", "target network\n" + r"$\theta^-$", ORANGE),
        (0.2, r"$\phi(s)$", r"$\phi(t)$", "target network\n" + r"$\theta^-$", ORANGE),
    )
    outputs = (r"$\psi_\theta(s, t)$", r"$\psi_{\theta^-}(s', t')$", r"$\psi_{\theta^-}(s, t)$")
    for (y, first, second, layers, colour), output in zip(rows, outputs, strict=True):
        draw_box(axes, 0.0, y + 0.3, first, width=1.35, height=0.5)
        draw_box(axes, 0.0, y - 0.3, second, width=1.35, height=0.5)
        draw_box(axes, 2.15, y, layers, colour, width=1.75, height=0.85)
        draw_arrow(axes, (0.7, y + 0.3), (1.25, y + 0.1))
        draw_arrow(axes, (0.7, y - 0.3), (1.25, y - 0.1))
        draw_arrow(axes, (3.05, y), (3.5, y))
        axes.text(4.0, y, output, ha="center", va="center", fontsize=10, color=colour)
    target = (
        r"$\max\{|R(s,a) - R(t,a)| + \gamma\beta\,\psi_{\theta^-}(s',t'),"
        r"\ \beta\,\psi_{\theta^-}(s,t)\}$"
    )
    draw_box(axes, 6.75, 0.87, "target T (no gradient)\n" + target, ORANGE, width=4.15, height=0.95)
    draw_arrow(axes, (4.55, 1.55), (5.2, 1.37), ORANGE)
    draw_arrow(axes, (4.55, 0.2), (5.2, 0.38), ORANGE)
    draw_box(axes, 6.75, 2.9, r"loss $(\psi_\theta(s, t) - T)^2$", BLUE, width=2.4)
    draw_arrow(axes, (4.5, 2.9), (5.5, 2.9), BLUE)
    draw_arrow(axes, (6.75, 1.37), (6.75, 2.57), ORANGE)
    axes.text(
        2.15,
        2.22,
        r"copied every C updates, $\theta^- \leftarrow \theta$",
        ha="center",
        va="center",
        fontsize=8.5,
        color=GREY,
    )
    axes.set(xlim=(-0.8, 8.95), ylim=(-0.5, 3.6))
    axes.axis("off")
    figure.savefig(FOLDER / "network.png", dpi=150)


def draw_densities():
    """Draw the cells of the GridWorld and a histogram of its noisy states."""
    mdp = worlds.load("mirrored-rooms")
    centres = mdp.positions + 0.5
    points, _ = sample_points(centres, noise=0.1, noise_clip=0.3, samples_per_state=20_000, seed=0)
    figure, axes = plt.subplots(figsize=(4.2, 4.9), layout="constrained")
    rows, columns = 9, 7
    axes.add_patch(plt.Rectangle((0, 0), columns, rows, facecolor="#bbbbbb", zorder=0))
    goals = {(1, 5), (5, 5)}
    for row, column in mdp.positions.astype(int):
        colour = "#a6d96a" if (row, column) in goals else "white"
        axes.add_patch(plt.Rectangle((column, row), 1, 1, facecolor=colour, zorder=1))
    # 30 bins per cell; black, and the more opaque the denser.
    density, _, _ = np.histogram2d(
        points[:, 0], points[:, 1], bins=(rows * 30, columns * 30), range=((0, rows), (0, columns))
    )
    image = np.zeros((*density.shape, 4))
    image[..., 3] = density / density.max()
    axes.imshow(image, extent=(0, columns, rows, 0), zorder=2)
    for line in range(columns + 1):
        axes.axvline(line, color="#dddddd", linewidth=0.6, zorder=1.5)
    for line in range(rows + 1):
        axes.axhline(line, color="#dddddd", linewidth=0.6, zorder=1.5)
    axes.set(xlim=(0, columns), ylim=(rows, 0), aspect="equal", xlabel="column", ylabel="row")
    axes.set_xticks(range(columns + 1))
    axes.set_yticks(range(rows + 1))
    axes.tick_params(length=2)
    figure.savefig(FOLDER / "densities.png", dpi=150)


draw_network()
draw_densities()
