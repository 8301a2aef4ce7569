"""A policy transferred to a larger grid.

Left, a small grid with its optimal policy. Right, a larger grid with the policy that imitates it by
the optimistic rule, coloured by its regret.
"""

from bisimetric import uses, views, worlds

SMALL = """
*********
*   *  g*
*       *
*   *   *
*********
"""
LARGE = """
*************
*     *    g*
*     *     *
*           *
*     *     *
*************
"""
source, target = (worlds.grid(text, discount=0.9) for text in (SMALL, LARGE))
nearest, optimistic = (uses.transfer(source, target, rule=r) for r in ("nearest", "optimistic"))
views.save_figure(views.plot_transfer(nearest, optimistic), "transfer.png")
