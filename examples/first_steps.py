"""From an MDP to a distance: how far apart are the two goals of the paper's grid, and why?

Run it with `python examples/first_steps.py`.
"""

from bisimetric import exact, planning, worlds

mdp = worlds.load("mirrored-rooms", discount=0.9)
print(mdp)

d = exact.bisimulation(mdp)
print(f"every distance is proven to {d.error:.1e}")
print(f"d~ of the two goals is {d('1,5', '5,5'):.4f}, although their values are the same:")

V = planning.optimal_values(mdp).values
print(f"V* is {V[mdp.state('1,5')]:.4f} and {V[mdp.state('5,5')]:.4f}")
print()
print(d.explain("1,5", "5,5"))
print()
for state, distance in d.nearest("1,5", k=3):
    print(f"near the first goal: {mdp.state_name(state)} at {distance:.4f}")
