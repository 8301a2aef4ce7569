"""Record transitions instead of building a model, and compare what the data determine.

Needs `pip install 'bisimetric[worlds]'`. Run it with `python examples/record_data.py`.
"""

from bisimetric import datasets, exact, worlds

steps = datasets.rollout("FrozenLake-v1", steps=20_000, seed=0, is_slippery=False)
print(steps)
print(f"terminated {steps.terminated.sum()} times, truncated {steps.truncated.sum()} times")

empirical = steps.to_mdp(discount=0.9)
d = exact.bisimulation(empirical)
print(f"empirical MDP: d(0,0; 2,0) = {d('0,0', '2,0'):.4f}")
model = worlds.from_gymnasium("FrozenLake-v1", is_slippery=False, discount=0.9)
print(f"true MDP:      d(0,0; 2,0) = {exact.bisimulation(model)('0,0', '2,0'):.4f}")

print("the same steps as a stream of chunks:")
for part in datasets.stream("FrozenLake-v1", steps=20_000, chunk_size=8_000, is_slippery=False):
    print(f"  {part}")

room = datasets.rollout("MiniGrid-DoorKey-5x5-v0", steps=2_000, seed=1, environment_seed=0)
mdp = worlds.enumerate_environment("MiniGrid-DoorKey-5x5-v0", seed=0)
names = room.names or ()
print(f"{room}\nof an MDP with {mdp.num_states} states; the last new state: {names[-1]}")
