"""The equation of a distance in exact rational arithmetic: what `.error` claims, to the bit."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from bisimetric import MDP, Distance

Masses = dict[int, Fraction]


def residual(d: Distance) -> Fraction:
    """The largest |F(d) - d|, exactly; the contraction proves |d - d*| <= that / (1 - discount)."""
    mdp = d.mdp if d.policy is None else d.mdp.under(d.policy)
    table = [[Fraction(float(entry)) for entry in row] for row in d.values]
    has = np.ones(mdp.R.shape, bool) if mdp.available is None else mdp.available
    known = [Fraction(float(reward)) for reward in mdp.R[has]]
    farthest = (max(known) - min(known)) / (1 - Fraction(mdp.discount))
    found = Fraction(0)
    for s in range(mdp.num_states):
        for t in range(s):
            ours, theirs = np.flatnonzero(has[s]).tolist(), np.flatnonzero(has[t]).tolist()
            if d.kind == "lax":
                delta = {(a, b): worth(mdp, table, s, a, t, b) for a in ours for b in theirs}
                there = max(min(delta[a, b] for b in theirs) for a in ours)
                image = max(there, max(min(delta[a, b] for a in ours) for b in theirs))
            elif ours != theirs:
                image = farthest
            else:
                image = max(worth(mdp, table, s, a, t, a) for a in ours)
            found = max(found, abs(image - table[s][t]))
    return found


def worth(mdp: MDP, d: list[list[Fraction]], s: int, a: int, t: int, b: int) -> Fraction:
    """|R(s, a) - R(t, b)| + discount * W1(d)(P(s, a), P(t, b)), shared mass left where it is."""
    p, q = distribution(mdp, s, a), distribution(mdp, t, b)
    send = {x: p[x] - q.get(x, Fraction(0)) for x in p if p[x] > q.get(x, Fraction(0))}
    take = {y: q[y] - p.get(y, Fraction(0)) for y in q if q[y] > p.get(y, Fraction(0))}
    gap = abs(Fraction(float(mdp.R[s, a])) - Fraction(float(mdp.R[t, b])))
    return gap + Fraction(mdp.discount) * transport(d, send, take)


def distribution(mdp: MDP, s: int, a: int) -> Masses:
    """P(s, a), divided by its sum."""
    row = s * mdp.num_actions + a
    part = slice(mdp.P.indptr[row], mdp.P.indptr[row + 1])
    masses = [Fraction(float(mass)) for mass in mdp.P.data[part]]
    return dict(zip(mdp.P.indices[part].tolist(), (m / sum(masses) for m in masses), strict=True))


def transport(d: list[list[Fraction]], send: Masses, take: Masses) -> Fraction:
    """The least cost of moving one mass onto the other, by successive shortest paths."""
    send, take, flow = dict(send), dict(take), dict[tuple[int, int], Fraction]()
    cost = Fraction(0)
    while any(send.values()):
        # Bellman & Ford: forward along any edge, backward along one that carries flow.
        far: dict[tuple[str, int], Fraction] = {("x", x): Fraction(0) for x in send if send[x]}
        came: dict[tuple[str, int], tuple[str, int]] = {}
        changed = True
        while changed:
            changed = False
            for x in send:
                for y in take:
                    steps = [(("x", x), ("y", y), d[x][y])]
                    if flow.get((x, y)):
                        steps.append((("y", y), ("x", x), -d[x][y]))
                    for here, there, length in steps:
                        if here in far and (there not in far or far[here] + length < far[there]):
                            far[there], came[there], changed = far[here] + length, here, True
        end = min((y for y in take if take[y]), key=lambda y: far["y", y])
        path = [("y", end)]
        while path[-1] in came:
            path.append(came[path[-1]])
        edges = list(zip(path[1:], path[:-1], strict=True))
        backward = [flow[there[1], here[1]] for here, there in edges if here[0] == "y"]
        amount = min(send[path[-1][1]], take[end], *backward)
        for here, there in edges:
            key = (here[1], there[1]) if here[0] == "x" else (there[1], here[1])
            flow[key] = flow.get(key, Fraction(0)) + (amount if here[0] == "x" else -amount)
        send[path[-1][1]] -= amount
        take[end] -= amount
        cost += amount * far["y", end]
    return cost
