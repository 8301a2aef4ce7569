"""Distances from a stream of transitions, with checkpoints; writes cliff-run.npz.

A random walk on CliffWalking never ends. Per transition, 20 pairs of those seen so far are sampled
by priority. Needs `pip install 'bisimetric[worlds]'`. Run it with
`python examples/endless_stream.py`.
"""

from bisimetric import datasets, sampled

for day, pairs in enumerate((50_000, 100_000, 400_000)):
    d = sampled.bisimulation(
        # Another seed per day: the same one would repeat the same steps.
        datasets.stream("CliffWalking-v1", chunk_size=500, seed=day),
        discount=0.9,
        sampler=sampled.Prioritised(),
        updates_per_transition=20,
        steps=pairs,
        checkpoint="cliff-run.npz",
        resume="cliff-run.npz" if day else None,
    )
    lower, upper = d.bounds("2,0", "2,11")
    print(f"day {day + 1}, {pairs:,} pairs so far: {d}")
    print(f"  d~ of the two ends of the ledge lies between {lower:.2f} and {upper:.2f}")

# From the left end one may fall off the cliff repeatedly; from the right end one reaches the goal.
print(d.explain("2,0", "2,11"))
