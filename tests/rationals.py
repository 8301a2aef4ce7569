"""The equation of a distance in exact rational arithmetic: what `.error` claims, to the bit."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from bisimetric import MDP, Distance

Masses = dict[int, Fraction]


def compute_residual(d: Distance) -> Fraction:
    """The largest |F(d) - d|, exactly; the contraction proves |d - d*| <= that / (1 - discount).

    F is that of the quotient, and mass that two rows share stays in place. That makes no difference
    to the metric d*, but to a d whose triangle inequality fails by rounding.
    """
    mdp = d.mdp if d.policy is None else d.mdp.apply_policy(d.policy)
    table = [[Fraction(float(entry)) for entry in row] for row in d.values]
    has = np.ones(mdp.R.shape, bool) if mdp.available is None else mdp.available
    known = [Fraction(float(reward)) for reward in mdp.R[has]]
    farthest = (max(known) - min(known)) / (1 - Fraction(mdp.discount))
    found, representative = Fraction(0), find_representatives(mdp, lax=d.kind == "lax")
    for s in range(mdp.num_states):
        for t in range(s):
            ours, theirs = np.flatnonzero(has[s]).tolist(), np.flatnonzero(has[t]).tolist()
            if d.kind == "lax":
                delta = {
                    (a, b): compute_backup(mdp, table, s, a, t, b, representative)
                    for a in ours
                    for b in theirs
                }
                there = max(min(delta[a, b] for b in theirs) for a in ours)
                image = max(there, max(min(delta[a, b] for a in ours) for b in theirs))
            elif ours != theirs:
                image = farthest
            else:
                image = max(compute_backup(mdp, table, s, a, t, a, representative) for a in ours)
            found = max(found, abs(image - table[s][t]))
    return found


def find_representatives(mdp: MDP, *, lax: bool) -> list[int]:
    """The first state of each state's class of the relation, by partition refinement."""
    has = np.ones(mdp.R.shape, bool) if mdp.available is None else mdp.available
    first = [0] * mdp.num_states
    while True:
        moves = [
            [
                (
                    None if lax else a,
                    float(mdp.R[s, a]),
                    frozenset(lift(normalise_row(mdp, s, a), first).items()),
                )
                for a in np.flatnonzero(has[s]).tolist()
            ]
            for s in range(mdp.num_states)
        ]
        signatures = [(old, frozenset(each)) for old, each in zip(first, moves, strict=True)]
        refined = [signatures.index(each) for each in signatures]
        if refined == first:
            return first
        first = refined


def lift(masses: Masses, representative: list[int]) -> Masses:
    """The masses of the representatives."""
    lifted: Masses = {}
    for x, mass in masses.items():
        lifted[representative[x]] = lifted.get(representative[x], Fraction(0)) + mass
    return lifted


def compute_backup(
    mdp: MDP,
    d: list[list[Fraction]],
    s: int,
    a: int,
    t: int,
    b: int,
    representative: list[int] | None = None,
) -> Fraction:
    """|R(s, a) - R(t, b)| + discount * W1(d)(P(s, a), P(t, b)), shared mass left where it is."""
    representative = list(range(mdp.num_states)) if representative is None else representative
    p, q = (lift(normalise_row(mdp, *row), representative) for row in ((s, a), (t, b)))
    send = {x: p[x] - q.get(x, Fraction(0)) for x in p if p[x] > q.get(x, Fraction(0))}
    take = {y: q[y] - p.get(y, Fraction(0)) for y in q if q[y] > p.get(y, Fraction(0))}
    gap = abs(Fraction(float(mdp.R[s, a])) - Fraction(float(mdp.R[t, b])))
    return gap + Fraction(mdp.discount) * solve_transport(d, send, take)


def normalise_row(mdp: MDP, s: int, a: int) -> Masses:
    """P(s, a), divided by its sum."""
    row = s * mdp.num_actions + a
    part = slice(mdp.P.indptr[row], mdp.P.indptr[row + 1])
    masses = [Fraction(float(mass)) for mass in mdp.P.data[part]]
    return dict(zip(mdp.P.indices[part].tolist(), (m / sum(masses) for m in masses), strict=True))


def solve_transport(d: list[list[Fraction]], send: Masses, take: Masses) -> Fraction:
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


Pair = tuple[int, int]
Step = tuple[Fraction, Pair | None]
"""A reward gap and the pair that follows; None where both states become one."""


def solve_deterministic(mdp: MDP, kind: str) -> list[list[Fraction]]:
    """d~ or d_lax of a deterministic MDP, exactly: strategy iteration on its pair graph.

    The maximising player has one option per action in d~, and one per side and action in d_lax; the
    minimising player chooses a step of that option. Hoffman & Karp (1966): in exact arithmetic no
    strategy comes back.
    """
    discount = Fraction(mdp.discount)
    options = {(s, t): _options(mdp, kind, s, t) for s in range(mdp.num_states) for t in range(s)}
    option, answer = dict.fromkeys(options, 0), dict.fromkeys(options, 0)

    def compute_backup(value: dict[Pair, Fraction], step: Step) -> Fraction:
        return step[0] + (discount * value[step[1]] if step[1] is not None else 0)

    while True:
        while True:
            chosen = {pair: options[pair][option[pair]][answer[pair]] for pair in options}
            value = _evaluate(chosen, discount)
            changed = False
            for pair, every in options.items():
                costs = [compute_backup(value, step) for step in every[option[pair]]]
                if min(costs) < costs[answer[pair]]:
                    answer[pair], changed = costs.index(min(costs)), True
            if not changed:
                break
        for pair, every in options.items():
            gains = [min(compute_backup(value, step) for step in steps) for steps in every]
            if max(gains) > gains[option[pair]]:
                option[pair], answer[pair], changed = gains.index(max(gains)), 0, True
        if not changed:
            table = [[Fraction(0)] * mdp.num_states for _ in range(mdp.num_states)]
            for (s, t), distance in value.items():
                table[s][t] = table[t][s] = distance
            return table


def _options(mdp: MDP, kind: str, s: int, t: int) -> list[list[Step]]:
    actions = range(mdp.num_actions)

    def step(a: int, b: int) -> Step:
        gap = abs(Fraction(float(mdp.R[s, a])) - Fraction(float(mdp.R[t, b])))
        x, y = int(mdp.next_state[s, a]), int(mdp.next_state[t, b])
        return gap, (max(x, y), min(x, y)) if x != y else None

    if kind != "lax":
        return [[step(a, a)] for a in actions]
    return [[step(a, b) for b in actions] for a in actions] + [
        [step(a, b) for a in actions] for b in actions
    ]


def _evaluate(chosen: dict[Pair, Step], discount: Fraction) -> dict[Pair, Fraction]:
    """Return the infinite-horizon value of one choice per pair."""
    value: dict[Pair, Fraction] = {}
    for start in chosen:
        path: list[Pair] = []
        pair: Pair | None = start
        while pair is not None and pair not in value and pair not in path:
            path.append(pair)
            pair = chosen[pair][1]
        if pair in path:
            cycle = path[path.index(pair) :]
            once = sum((discount**k * chosen[p][0] for k, p in enumerate(cycle)), Fraction(0))
            value[cycle[0]] = once / (1 - discount ** len(cycle))
            for p in reversed(cycle[1:]):
                following = chosen[p][1]
                value[p] = chosen[p][0] + discount * value[following or cycle[0]]
        for p in reversed([p for p in path if p not in value]):
            following = chosen[p][1]
            ahead = value[following] if following is not None else Fraction(0)
            value[p] = chosen[p][0] + discount * ahead
    return value


def solve_mico(mdp: MDP) -> list[list[Fraction]]:
    """MICo of an MDP with one action, exactly: a linear system by elimination."""
    states, discount = range(mdp.num_states), Fraction(mdp.discount)
    rows = [normalise_row(mdp, s, 0) for s in states]
    pairs = [(s, t) for s in states for t in range(s + 1)]
    number = {pair: i for i, pair in enumerate(pairs)}
    system = []
    for s, t in pairs:
        line = [Fraction(0)] * (len(pairs) + 1)
        line[number[s, t]] += 1
        for x, p in rows[s].items():
            for y, q in rows[t].items():
                line[number[max(x, y), min(x, y)]] -= discount * p * q
        line[-1] = abs(Fraction(float(mdp.R[s, 0])) - Fraction(float(mdp.R[t, 0])))
        system.append(line)
    for i in range(len(pairs)):
        pivot = next(k for k in range(i, len(pairs)) if system[k][i])
        system[i], system[pivot] = system[pivot], system[i]
        system[i] = [entry / system[i][i] for entry in system[i]]
        for k in range(len(pairs)):
            if k != i and system[k][i]:
                factor = system[k][i]
                system[k] = [a - factor * b for a, b in zip(system[k], system[i], strict=True)]
    return [[system[number[max(s, t), min(s, t)]][-1] for t in states] for s in states]


def compute_largest_error(values: Any, truth: list[list[Fraction]]) -> Fraction:
    """The largest difference of a float table from a rational one, exactly."""
    return max(
        abs(Fraction(float(found)) - true)
        for row, line in zip(np.asarray(values), truth, strict=True)
        for found, true in zip(row, line, strict=True)
    )
