"""Query distances in an implicit MDP with infinitely many states, which are never enumerated.

A shop has a stock of any size. Each day it orders one item or waits; with probability 1/2 a
customer takes one. Storing costs money, up to ten items. Run it with
`python examples/never_enumerated.py`.
"""

from bisimetric import ImplicitMDP, exact


def day(stock: int, action: str) -> tuple[float, dict[int, float]]:
    """Return the expected reward of a day, and the distribution of the next stock."""
    offered = stock + (action == "order")
    reward = 0.5 * (offered > 0) - 0.02 * min(stock, 10) - 0.3 * (action == "order")
    if offered == 0:
        return reward, {0: 1.0}
    return reward, {offered: 0.5, offered - 1: 0.5}


shop = ImplicitMDP(day, actions=("order", "wait"), discount=0.8, reward_range=(-0.5, 0.5))
print(shop)

pairs = [(0, 1), (0, 3), (8, 9), (10**9, 10**12)]
d = exact.query(shop, pairs, tol=1e-3)
print(f"{d.num_explored:,} pairs were explored; every distance is proven to {d.error:.1e}:")
for s, t in pairs:
    print(f"d~ of {s:,} and {t:,} items is {d(s, t):.3f}")

waiting = exact.query(shop, pairs, kind="on_policy", policy=lambda stock: "wait", tol=1e-3)
print(f"under the policy that always waits, d^pi of 0 and 3 items is {waiting(0, 3):.3f}")
