"""Small labelled models in the style of PRISM's case studies, written out by loops."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable

import numpy as np

from bisimetric import MDP

Row = dict[Hashable, float]


def explore(
    initial: Hashable, step: Callable[..., Row], label: Callable[..., tuple[str, ...]]
) -> MDP:
    """Build the chain of all states that are reachable; a state without successors is absorbing."""
    rows: dict[Hashable, Row] = {}
    pending = [initial]
    while pending:
        state = pending.pop()
        if state not in rows:
            rows[state] = step(state) or {state: 1.0}
            pending += rows[state]
    number = {state: i for i, state in enumerate(rows)}
    P = np.zeros((len(rows), 1, len(rows)))
    for state, row in rows.items():
        for successor, mass in row.items():
            P[number[state], 0, number[successor]] += mass
    return MDP(P, np.zeros((len(rows), 1)), discount=0.9, labels=[label(state) for state in rows])


def build_die() -> MDP:
    """Return Knuth & Yao's die: fair coins until a face is decided."""
    edges = {0: (1, 2), 1: (3, 4), 2: (5, 6), 3: (1, "1"), 4: ("2", "3"), 5: ("4", "5"),
             6: ("6", 2)}  # fmt: skip
    return explore(
        0,
        lambda s: dict.fromkeys(edges[s], 0.5) if s in edges else {},
        lambda s: (s,) if isinstance(s, str) else (),
    )


def build_leader(processes: int, ids: int) -> MDP:
    """Return a synchronous election: all draw ids one by one, until the largest is unique."""

    def step(drawn: tuple[int, ...] | str) -> Row:
        if isinstance(drawn, str):
            return {}
        if len(drawn) < processes:
            return {(*drawn, i): 1 / ids for i in range(ids)}
        return {"elected" if drawn.count(max(drawn)) == 1 else (): 1.0}

    return explore((), step, lambda s: ("elected",) if s == "elected" else ())


def build_crowds(size: int, runs: int) -> MDP:
    """Return the crowds protocol: who does the last member see most often, over some runs?

    A state is the number of runs left, the last member or None, and how often each was observed.
    """

    def step(state: tuple[int, int | None, tuple[int, ...]]) -> Row:
        left, member, seen = state
        if member is None:
            return {(left - 1, 0, seen): 1.0} if left else {}
        observed = tuple(count + (i == member) for i, count in enumerate(seen))
        row: Row = {(left, None, observed): 0.167, (left, None, seen): 0.833 * 0.2}
        for i in range(size):
            row[left, i, seen] = 0.833 * 0.8 / size
        return row

    return explore(
        (runs, None, (0,) * size),
        step,
        lambda s: tuple(f"observe{i}" for i, count in enumerate(s[2]) if count > 1),
    )


def build_nand(inputs: int, stages: int) -> MDP:
    """Return NAND multiplexing: stages of unreliable gates on inputs drawn from the last stage.

    A state is the stage, the number of finished gates, their number of ones, the inputs with one of
    the last stage, and the first input of the current gate or None.
    """
    State = tuple[int, int, int, int, int | None]

    def step(state: State) -> Row:
        stage, done, ones, before, first = state
        if stage == stages:
            return {}
        if done == inputs:
            return {(stage + 1, 0, 0, ones, None): 1.0}
        high = before / inputs
        row: Row = {}
        if first is None:
            for bit, mass in ((1, high), (0, 1 - high)):
                if mass:
                    row[stage, done, ones, before, bit] = mass
            return row
        for bit, error in itertools.product((0, 1), (False, True)):
            mass = (high if bit else 1 - high) * (0.02 if error else 0.98)
            output = (not (first and bit)) != error
            if mass:
                successor = (stage, done + 1, ones + output, before, None)
                row[successor] = row.get(successor, 0.0) + mass
        return row

    def label(state: State) -> tuple[str, ...]:
        is_end = state[0] == stages
        return ("end", "target") if is_end and 10 * state[3] < inputs else ("end",) * is_end

    return explore((0, 0, 0, inputs, None), step, label)
