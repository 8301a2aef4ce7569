"""Transfer the optimal policy of two small rooms to two large ones: writes transfer.png.

Run it with `python examples/transfer_policy.py`. Every rule is tried with both distances; the
figure shows the source, the nearest rule, and the optimistic one.
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
union = uses.disjoint_union(source, target)
print(f"disjoint union: {union}")

results = {}
print("distance      rule            bound largest regret mean regret")
for d in (exact.lax(union), exact.bisimulation(union)):
    for rule in ("nearest", "pessimistic", "hopeful", "optimistic"):
        result = uses.transfer(source, target, d, rule=rule, require_proof=True)
        results[d.kind, rule] = result
        numbers = (result.max_regret_bound, result.max_regret, result.regret.mean())
        print("{:<13} {:<12} {:8.3f} {:14.3f} {:11.3f}".format(d.kind, rule, *numbers))

best = results["lax", "optimistic"]
random = best.random_regret
print(f"uniform random actions     {random.max():25.3f} {random.mean():11.3f}")
print(f"no regret exceeds          {best.diameter_bound:.3f}")

corner = target.state("6,1")
imitated, action = (
    source.state_name(best.matched_states[corner]),
    source.action_name(best.matched_actions[corner]),
)
print(f"6,1 goes {target.action_name(best.policy[corner])}, as {imitated} goes {action}")

views.save_figure(views.plot_transfer(results["lax", "nearest"], best), "transfer.png")
print("saved transfer.png")
