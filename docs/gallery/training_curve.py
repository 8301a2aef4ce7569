"""Training curves of a learned metric.

Pair Q-learning on the paper's two rooms at discount 0.9, with the exact metric as reference: the
network learns from row and column, and its errors are recorded every 100 updates.
"""

from bisimetric import exact, learned, views, worlds

mdp = worlds.load("mirrored-rooms", discount=0.9)
d = learned.bisimulation(
    mdp,
    updates=2_000,
    seed=0,
    config=learned.PairQConfig(learned.MetricNetwork((64, 64), num_groups=16), batch_size=64),
    reference=exact.bisimulation(mdp),
    options=learned.RunOptions(log_every=100),
)
views.save_figure(views.plot_training_curve(d.history), "training_curve.png")
