"""The best policy of two small rooms, carried to two large ones: writes transfer.png.

Run it with `python examples/transfer_policy.py`. Every rule is tried with both distances; the
picture shows the source, the nearest rule, and the optimistic one.
"""

from bisimetric import exact, uses, views, worlds

SMALL = """
*********
*   *  g*
*       *
*   *   *
*********
"""
LARGE = """
*****************
*       *      g*
*       *       *
*       *       *
*               *
*       *       *
*       *       *
*****************
"""

source, target = worlds.grid(SMALL, discount=0.9), worlds.grid(LARGE, discount=0.9)
pair = uses.disjoint_union(source, target)
print(f"together: {pair}")

found = {}
print("distance      rule         promised   largest loss   mean loss")
for d in (exact.lax(pair), exact.bisimulation(pair)):
    for rule in ("nearest", "pessimistic", "hopeful", "optimistic"):
        carried = uses.transfer(source, target, d, rule=rule, proof=True)
        found[d.kind, rule] = carried
        numbers = (carried.max_regret_bound, carried.max_regret, carried.regret.mean())
        print("{:<13} {:<12} {:8.3f} {:14.3f} {:11.3f}".format(d.kind, rule, *numbers))

random = found["lax", "optimistic"].random_regret
print(f"any action, equally likely {random.max():25.3f} {random.mean():11.3f}")
print(f"no policy loses more than  {found['lax', 'optimistic'].diameter_bound:.3f}")

best = found["lax", "optimistic"]
corner = target.state("6,1")
like, action = (
    source.state_name(best.matched_states[corner]),
    source.action_name(best.matched_actions[corner]),
)
print(f"6,1 goes {target.action_name(best.policy[corner])}, as {like} goes {action}")

views.save_figure(views.plot_transfer(found["lax", "nearest"], best), "transfer.png")
print("saved transfer.png")
