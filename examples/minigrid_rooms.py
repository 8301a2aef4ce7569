"""Enumerate a MiniGrid room with a key and a door, and draw its distances: writes key.png.

Needs `pip install 'bisimetric[worlds]'`. Run it with `python examples/minigrid_rooms.py`.
"""

from bisimetric import exact, planning, views, worlds

mdp = worlds.load("MiniGrid-DoorKey-5x5-v0", seed=0, discount=0.9)
print(mdp)

V = planning.optimal_values(mdp).values
state = 0
print("an optimal path to the goal:")
policy = planning.greedy_policy(mdp)
while mdp.state_name(state) != "end":
    action = int(policy[state])
    print(f"  {mdp.state_name(state)}: {mdp.action_name(action)} (V* {V[state]:.3f})")
    state = int(mdp.next_state[state, action])

d = exact.lax(mdp)
print("nearest to the start by the lax distance:")
for other, distance in d.nearest(0, k=3):
    print(f"  {mdp.state_name(other)} at {distance:.4f}")
views.save_figure(views.plot_distances_from(d, 0), "key.png")
print("saved key.png")
