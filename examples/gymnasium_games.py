"""Convert Gymnasium's toy-text environments: bisimilar states of FrozenLake and Taxi.

Needs `pip install 'bisimetric[worlds]'`. Run it with `python examples/gymnasium_games.py`.
"""

import warnings

from bisimetric import exact, planning, relation, views, worlds
from bisimetric.errors import ExpectedRewardWarning

lake = worlds.load("FrozenLake-v1", is_slippery=False, discount=0.9)
d = exact.bisimulation(lake)
print(lake)
print(views.format_terminal_map(d, "0,0"))
print(f"a hole and the goal are both terminal: d~ is {d('1,1', '3,3'):.4f}")
print(f"beside the goal and the goal: d~ is {d('3,2', '3,3'):.4f}")
print()

# On slippery ice the reward depends on the successor: its expectation is used, with a warning.
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always", ExpectedRewardWarning)
    ice = worlds.load("FrozenLake-v1", map_name="8x8")
print(ice)
print(f"warning: {caught[0].message}")
print(f"the value of the start is {planning.optimal_values(ice).values[0]:.4f}")
print()

taxi = worlds.load("Taxi-v4")
classes = relation.bisimulation(taxi).max() + 1
print(f"{taxi}: {classes} classes of bisimilar states")
last = taxi.state("taxi 0,4 passenger aboard to G")
drop = (taxi.actions or ()).index("drop off")
terminal = taxi.next_state[last, drop]
print(f"{taxi.state_name(last)} -> {taxi.state_name(terminal)}: {taxi.R[last, drop]:+g}")
