"""Experience instead of a model: random steps, what they know, and what they leave open.

Needs `pip install 'bisimetric[worlds]'`. Run it with `python examples/experience.py`.
"""

from bisimetric import datasets, exact, worlds

steps = datasets.rollout("FrozenLake-v1", steps=20_000, seed=0, is_slippery=False)
print(steps)
print(f"ended {steps.terminated.sum()} times, cut {steps.truncated.sum()} times")

seen = steps.to_mdp(discount=0.9)
d = exact.bisimulation(seen)
print(f"from experience, the start is at {d('0,0', '2,0'):.4f} from 2,0")
known = worlds.from_gymnasium("FrozenLake-v1", is_slippery=False, discount=0.9)
print(f"from the model,                {exact.bisimulation(known)('0,0', '2,0'):.4f}")

print("the same steps, as they come:")
for part in datasets.stream("FrozenLake-v1", steps=20_000, chunk_size=8_000, is_slippery=False):
    print(f"  {part}")

room = datasets.rollout("MiniGrid-DoorKey-5x5-v0", steps=2_000, seed=1, environment_seed=0)
world = worlds.enumerate_environment("MiniGrid-DoorKey-5x5-v0", seed=0)
names = room.names or ()
print(f"{room}\nof a room with {world.num_states} states; the last one met: {names[-1]}")
