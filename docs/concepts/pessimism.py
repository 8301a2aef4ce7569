"""Draw the three states of the pessimism example: python docs/concepts/pessimism.py."""

from pathlib import Path

import matplotlib.pyplot as plt

POSITIONS = {"s": (0.0, 1.0), "t": (2.0, 1.0), "u": (1.0, 0.0)}
EDGES = [
    # from, to, label, curvature, position of the label
    ("s", "t", "a, reward 1", -0.25, (1.0, 1.36)),
    ("t", "s", "b, reward 1", -0.25, (1.0, 0.66)),
    ("s", "u", "b, reward 0", 0.0, (0.12, 0.45)),
    ("t", "u", "a, reward 0", 0.0, (1.88, 0.45)),
]

figure, axes = plt.subplots(figsize=(5.0, 2.9), layout="constrained")
for name, (x, y) in POSITIONS.items():
    axes.scatter(x, y, s=900, color="white", edgecolor="black", linewidth=1.5, zorder=2)
    axes.text(x, y, name, ha="center", va="center", fontsize=14, zorder=3)
for start, end, label, curvature, (x, y) in EDGES:
    axes.annotate(
        "",
        POSITIONS[end],
        POSITIONS[start],
        arrowprops={
            "arrowstyle": "-|>",
            "color": "black",
            "connectionstyle": f"arc3,rad={curvature}",
            "shrinkA": 16,
            "shrinkB": 16,
        },
    )
    axes.text(x, y, label, ha="center", va="center", fontsize=11)
axes.text(1.22, -0.02, "absorbing, reward 0", va="center", fontsize=11)
axes.set(xlim=(-0.5, 2.5), ylim=(-0.25, 1.5))
axes.axis("off")
figure.savefig(Path(__file__).with_suffix(".png"), dpi=150)
