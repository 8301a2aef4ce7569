"""W1 of two distributions by successive shortest paths, in integers."""

from __future__ import annotations

from collections.abc import Callable

from tests.high_precision.models import Distribution

Coupling = dict[tuple[int, int], int]
Cost = Callable[[int, int], int]


def cancel_common_mass(p: Distribution, q: Distribution) -> tuple[dict[int, int], dict[int, int]]:
    """What p has more than q, and q more than p, in units of 1 / (p.total * q.total).

    For a metric, leaving shared mass where it is costs nothing. For any other table it makes
    another operator than W1: also monotone and a contraction, with the same fixed point, which is
    a metric. So residuals of either prove the same bound.
    """
    send, take = {}, {}
    for x in p.masses.keys() | q.masses.keys():
        more = p.masses.get(x, 0) * q.total - q.masses.get(x, 0) * p.total
        if more > 0:
            send[x] = more
        elif more < 0:
            take[x] = -more
    return send, take


def solve_transport(send: dict[int, int], take: dict[int, int], cost: Cost) -> tuple[int, Coupling]:
    """The least cost of moving `send` onto `take`, masses of one total, and how."""
    if len(send) == 1:
        (x,) = send
        flow = {(x, y): mass for y, mass in take.items()}
    elif len(take) == 1:
        (y,) = take
        flow = {(x, y): mass for x, mass in send.items()}
    else:
        flow = _flow(dict(send), dict(take), cost)
    return sum(mass * cost(x, y) for (x, y), mass in flow.items()), flow


def _flow(send: dict[int, int], take: dict[int, int], cost: Cost) -> Coupling:
    flow: Coupling = {}
    costs = {(x, y): cost(x, y) for x in send for y in take}
    while any(send.values()):
        # Bellman & Ford from every x with mass left: forward along all edges, back along flow.
        at_x = {x: 0 for x, mass in send.items() if mass}
        at_y: dict[int, int] = {}
        to_x: dict[int, int] = {}
        to_y: dict[int, int] = {}
        changed = True
        while changed:
            changed = False
            for (x, y), length in costs.items():
                if x in at_x and (y not in at_y or at_x[x] + length < at_y[y]):
                    at_y[y], to_y[y], changed = at_x[x] + length, x, True
                back = bool(flow.get((x, y))) and y in at_y
                if back and (x not in at_x or at_y[y] - length < at_x[x]):
                    at_x[x], to_x[x], changed = at_y[y] - length, y, True
        y = min((y for y, mass in take.items() if mass), key=at_y.__getitem__)
        forward, backward, end = [], [], y
        while True:
            x = to_y[y]
            forward.append((x, y))
            if x not in to_x:
                break
            y = to_x[x]
            backward.append((x, y))
        amount = min([send[x], take[end], *(flow[edge] for edge in backward)])
        for edge in forward:
            flow[edge] = flow.get(edge, 0) + amount
        for edge in backward:
            flow[edge] -= amount
        send[x] -= amount
        take[end] -= amount
    return {edge: mass for edge, mass in flow.items() if mass}
