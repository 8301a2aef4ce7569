"""Transfer the optimal policy of two small rooms to other rooms: writes transfer.png.

Run it with `python examples/transfer_policy.py`. The first target are the same rooms, turned by 90
degrees and with slightly different rewards: nearly bisimilar, so that the regret bounds are far
below the trivial bound, the largest regret of any policy. The second are larger rooms, where the
bounds are weak, and some are vacuous: at least the trivial bound. Every rule is tried with both
distances; the figure shows the source, the nearest rule, and the optimistic one.
"""

import numpy as np

from bisimetric import MDP, exact, uses, views, worlds

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

NOISE = 0.01


def turn(text: str) -> str:
    """Turn a map by 90 degrees."""
    rows = text.strip("\n").splitlines()
    return "\n".join("".join(column) for column in zip(*rows[::-1], strict=True))


def compare_rules(source: MDP, target: MDP) -> dict[tuple[str, str], uses.Transfer]:
    """Print bound and regret of every rule and distance, and return the transfers."""
    union = uses.disjoint_union(source, target)
    results: dict[tuple[str, str], uses.Transfer] = {}
    print("distance     rule           bound  better than random  largest regret  mean regret")
    for d in (exact.lax(union), exact.bisimulation(union)):
        for rule in ("nearest", "pessimistic", "hopeful", "optimistic"):
            result = uses.transfer(source, target, d, rule=rule, require_proof=True)
            results[d.kind, rule] = result
            better = f"{result.better_than_random.sum()} of {target.num_states} states"
            print(
                f"{d.kind:<12} {rule:<11} {result.max_regret_bound:8.3f} {better:>19} "
                f"{result.max_regret:15.3f} {result.regret.mean():12.3f}"
                f"{'  vacuous' * result.is_vacuous}"
            )
    random = result.random_regret
    print(f"uniform random actions {random.max():46.3f} {random.mean():12.3f}")
    print(f"trivial bound          {result.trivial_bound:10.3f}\n")
    return results


source, turned = (worlds.grid(text, discount=0.9) for text in (SMALL, turn(SMALL)))
noise = NOISE * np.random.default_rng(0).uniform(-1, 1, turned.R.shape)
print(f"the same rooms, turned, with rewards that differ by up to {NOISE}")
compare_rules(source, turned.replace(R=turned.R + noise))

print("larger rooms")
target = worlds.grid(LARGE, discount=0.9)
results = compare_rules(source, target)
best = results["lax", "optimistic"]
corner = target.state("6,1")
imitated, action = (
    source.state_name(best.matched_states[corner]),
    source.action_name(best.matched_actions[corner]),
)
print(f"6,1 goes {target.action_name(best.policy[corner])}, as {imitated} goes {action}")

views.save_figure(views.plot_transfer(results["lax", "nearest"], best), "transfer.png")
print("saved transfer.png")
