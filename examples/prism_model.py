"""Read a labelled model from PRISM's explicit files: two routes for a message; writes relay.*.

`prism relay.nm -exportmodel relay.all` writes such files. Run it with
`python examples/prism_model.py`.
"""

import warnings
from pathlib import Path

import numpy as np

from bisimetric import exact, relation, worlds
from bisimetric.errors import MissingActionsWarning

FILES = {
    # States, choices, transitions; then state, choice, successor, probability and action.
    "relay.tra": """6 7 7
0 0 1 1 left
0 1 3 1 right
1 0 2 1 send
2 0 5 1 send
3 0 4 1 send
4 0 5 1 send
5 0 5 1 send
""",
    "relay.sta": "(side,hops)\n0:(0,0)\n1:(1,1)\n2:(1,2)\n3:(2,1)\n4:(2,2)\n5:(0,3)\n",
    "relay.lab": '0="init" 1="deadlock" 2="arrived"\n0: 0\n5: 2\n',
}
for name, text in FILES.items():
    Path(name).write_text(text)

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always", MissingActionsWarning)
    mdp = worlds.load("relay.tra", discount=0.9)
print(mdp, "with actions", ", ".join(mdp.actions or ()))
print(f"warning: {caught[0].message}")

print("bisimilar states:")
labels = relation.bisimulation(mdp)
for label in range(labels.max() + 1):
    print("  " + "  ".join(mdp.state_name(int(s)) for s in np.flatnonzero(labels == label)))

d = exact.bisimulation(mdp)
print("how soon a difference shows, from 1 (at once) to 0 (never):")
for state in range(mdp.num_states):
    distance = (1 - mdp.discount) * d("(1,1)", state)
    print(f"  (1,1) and {mdp.state_name(state)}: {distance:.3f}")
