"""Which states behave exactly alike? Bisimulation relations by partition refinement.

Bisimulation and its lax form are both strong bisimulation of a labelled graph: the transition of
state s under action a is an edge to next(s, a), labelled (a, R(s, a)), or only R(s, a) if it may be
matched by any action. Edges are refined together with states, each time by the smaller half, in
O(m log m) for m = S * A edges:

    Paige & Tarjan (1987), Three partition refinement algorithms, SIAM J. Comput. 16(6);
    Valmari (2009), Bisimilarity minimization in O(m log n) time, Petri Nets 2009.

The first call compiles for some seconds; later processes read the result from Numba's cache.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray

from bisimetric.errors import InputError
from bisimetric.mdp import MDP


def bisimulation(mdp: MDP) -> NDArray[np.int64]:
    """The classes (S,) of the largest bisimulation of a deterministic MDP.

        s ~ t  iff  for all a:  R(s, a) = R(t, a)  and  next(s, a) ~ next(t, a)

    Rewards are compared exactly, as floats. Classes are numbered by first appearance; two states
    have the same number iff d~(s, t) = 0. See Givan, Dean & Greig (2003), Equivalence notions and
    model minimization in Markov decision processes, Artificial Intelligence 147.

    >>> mdp = MDP.deterministic([[2, 0], [2, 1], [2, 2]], [[1, 0], [1, 0], [0, 0]], discount=0.9)
    >>> bisimulation(mdp)
    array([0, 0, 1])
    """
    _refuse_stochastic(mdp)
    labels = np.empty(mdp.R.shape, np.int64)
    num_labels = 0
    for a in range(mdp.num_actions):
        column, found = _ranks(mdp.R[:, a])
        labels[:, a] = num_labels + column
        num_labels += found
    return _classes(mdp, labels, num_labels)


def on_policy(mdp: MDP, policy: ArrayLike) -> NDArray[np.int64]:
    """The classes (S,) of the largest bisimulation of the chain that a policy makes of an MDP.

        s ~ t  iff  R^pi(s) = R^pi(t)  and  next^pi(s) ~ next^pi(t)

    The policy is (S,) or (S, A) and must give each state one successor.

    >>> mdp = MDP.deterministic([[2, 0], [1, 2], [2, 2]], [[1, 0], [3, 1], [0, 0]], discount=0.9)
    >>> on_policy(mdp, [0, 1, 0])
    array([0, 0, 1])
    """
    return bisimulation(mdp.under(policy))


def lax(mdp: MDP) -> NDArray[np.int64]:
    """The classes (S,) of the largest lax bisimulation of a deterministic MDP.

        s ~ t  iff  {(R(s, a), [next(s, a)]) : a} = {(R(t, b), [next(t, b)]) : b}

    as sets, where [u] is the class of u: each action of s is matched by an action of t in reward
    and dynamics at once, and each of t by one of s. See Taylor, Precup & Panangaden (2009),
    Bounding performance loss in approximate MDP homomorphisms, NIPS 21. Two states have the same
    number iff d_lax(s, t) = 0.

    >>> mdp = MDP.deterministic([[2, 0], [1, 2], [2, 2]], [[1, 0], [0, 1], [0, 0]], discount=0.9)
    >>> lax(mdp), bisimulation(mdp)
    (array([0, 0, 1]), array([0, 1, 2]))
    """
    _refuse_stochastic(mdp)
    return _classes(mdp, *_ranks(mdp.R))


def quotient(mdp: MDP, labels: ArrayLike) -> MDP:
    """The MDP on the classes of a relation, made of the first state of each class.

        R'(c, a) = R(s_c, a),    next'(c, a) = [next(s_c, a)],    s_c = the first state of class c

    `labels` (S,) come from `bisimulation` or `lax`: then V*(s) is the optimal value of the class of
    s. Names, positions, features and policy are those of the first states.

    >>> mdp = MDP.deterministic([[2], [2], [2]], [[1], [1], [0]], discount=0.9, names="xyz")
    >>> small = quotient(mdp, bisimulation(mdp))
    >>> small.names, small.next_state.ravel()
    (('x', 'z'), array([1, 1]))
    """
    _refuse_stochastic(mdp)
    classes = np.asarray(labels)
    if classes.shape != (mdp.num_states,) or classes.dtype.kind not in "iu":
        raise InputError(
            f"quotient: labels are {classes.dtype} of shape {classes.shape} and must be one "
            f"integer for each of {mdp.num_states} states."
        )
    found, first = np.unique(classes, return_index=True)
    if not np.array_equal(found, np.arange(len(found))):
        raise InputError(
            f"quotient: {len(found)} classes are labelled from {found[0]} to {found[-1]} and must "
            f"be from 0 to {len(found) - 1}."
        )

    def of_first(rows: NDArray[Any] | None) -> NDArray[Any] | None:
        return None if rows is None else rows[first]

    return MDP.deterministic(
        classes[mdp.next_state[first]],
        mdp.R[first],
        discount=mdp.discount,
        names=None if mdp.names is None else [mdp.names[s] for s in first],
        actions=mdp.actions,
        positions=of_first(mdp.positions),
        features=of_first(mdp.features),
        policy=of_first(mdp.policy),
    )


def _refuse_stochastic(mdp: MDP) -> None:
    if not mdp.is_deterministic:
        s, a = mdp.first_branch()
        successors = np.diff(mdp.P.indptr)[s * mdp.num_actions + a]
        raise InputError(
            "relation: relations need one successor per state and action, and a transition from "
            f"state {mdp.name(s)} has {successors}."
        )


def _ranks(rewards: NDArray[np.float64]) -> tuple[NDArray[np.int64], int]:
    """The rank of each reward among the distinct ones, and how many those are."""
    values, ranks = np.unique(rewards + 0.0, return_inverse=True)  # -0.0 + 0.0 is 0.0
    return ranks.reshape(rewards.shape), len(values)


def _classes(mdp: MDP, labels: NDArray[np.int64], num_labels: int) -> NDArray[np.int64]:
    # Refinement is bound by memory traffic, so indices are as narrow as they can be.
    index = np.int32 if mdp.R.size <= np.iinfo(np.int32).max else np.int64
    classes: NDArray[np.int64] = _refined(
        mdp.next_state.astype(index), labels.astype(index), num_labels
    )
    return classes


class _Partition(NamedTuple):
    """A partition of 0..n-1 into blocks, which are split by marking elements.

    Block b is `order[start[b]:stop[b]]`, its marked elements first; `place` inverts `order`.
    """

    order: NDArray[Any]
    place: NDArray[Any]
    block: NDArray[Any]
    start: NDArray[Any]
    stop: NDArray[Any]
    marked: NDArray[Any]  # how many elements of a block are marked
    touched: NDArray[Any]  # the blocks with marked elements; `counts[1]` of them
    counts: NDArray[Any]  # blocks, touched blocks


@njit(cache=True)
def _grouped(keys: NDArray[Any], num_keys: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Positions sorted by key, and where each key starts: a counting sort, stable."""
    starts = np.zeros(num_keys + 1, keys.dtype)
    for key in keys:
        starts[key + 1] += 1
    for key in range(num_keys):
        starts[key + 1] += starts[key]
    ends = starts[:-1].copy()
    order = np.empty_like(keys)
    for i in range(len(keys)):
        order[ends[keys[i]]] = i
        ends[keys[i]] += 1
    return order, starts


@njit(cache=True)
def _partition(keys: NDArray[Any], num_keys: int) -> _Partition:
    """The partition of positions by key; every key from 0 to `num_keys` - 1 occurs."""
    order, starts = _grouped(keys, num_keys)
    place = np.empty_like(keys)
    for i in range(len(order)):
        place[order[i]] = i
    start, stop = np.empty_like(keys), np.empty_like(keys)
    start[:num_keys], stop[:num_keys] = starts[:-1], starts[1:]
    counts = np.array([num_keys, 0])
    marked, touched = np.zeros_like(keys), np.empty_like(keys)
    return _Partition(order, place, keys.copy(), start, stop, marked, touched, counts)


@njit(cache=True)
def _mark(partition: _Partition, x: int) -> None:
    order, place, b = partition.order, partition.place, partition.block[x]
    here, there = place[x], partition.start[b] + partition.marked[b]
    if here < there:
        return
    y = order[there]
    order[here], place[y] = y, here
    order[there], place[x] = x, there
    if partition.marked[b] == 0:
        partition.touched[partition.counts[1]] = b
        partition.counts[1] += 1
    partition.marked[b] += 1


@njit(cache=True)
def _split(partition: _Partition) -> None:
    """Part marked from unmarked elements in each block; the smaller half gets the next number."""
    start, stop = partition.start, partition.stop
    for b in partition.touched[: partition.counts[1]]:
        middle = start[b] + partition.marked[b]
        partition.marked[b] = 0
        if middle == stop[b]:
            continue
        c = partition.counts[0]
        partition.counts[0] += 1
        if middle - start[b] <= stop[b] - middle:
            start[c], stop[c], start[b] = start[b], middle, middle
        else:
            start[c], stop[c], stop[b] = middle, stop[b], middle
        for x in partition.order[start[c] : stop[c]]:
            partition.block[x] = c
    partition.counts[1] = 0


@njit(cache=True)
def _refined(targets: NDArray[Any], labels: NDArray[Any], num_labels: int) -> NDArray[np.int64]:
    """The classes (S,) of strong bisimulation, for edges s -`labels[s, a]`-> `targets[s, a]`.

    Edges are parted into cords: those of one label into one block of states. A cord that has
    been processed splits no block: all states of a block have an edge in it, or none has. A part c
    of a processed cord K splits a block three ways: states whose edges in K lie all in c, partly,
    or not at all. So the edges from one state in one processed cord are held as a bundle, with its
    size. All edges together count as the first processed cord, as every state has one.

    A half that is parted off is the smaller one, so an edge is in at most log2(m) + 1 cords that
    are processed, and a state in at most log2(S) blocks whose incoming edges part the cords.
    """
    num_states, num_actions = targets.shape
    # Edges are numbered by target: those into state s are into[s] to into[s + 1] - 1.
    by_target, into = _grouped(targets.ravel(), num_states)
    source = (by_target // num_actions).astype(targets.dtype)
    cords = _partition(labels.ravel()[by_target], num_labels)
    blocks = _partition(np.zeros(num_states, targets.dtype), 1)

    bundle, num_bundles = source.copy(), num_states
    size = np.empty_like(source)
    size[:num_states] = num_actions
    inside = np.zeros(num_states, targets.dtype)  # how many edges a state has in cord c
    home = np.empty(num_states, targets.dtype)  # the bundle of these edges
    b, c = 1, 1  # block 0 and cord 0 are what the others leave
    while c < cords.counts[0]:
        edges = cords.order[cords.start[c] : cords.stop[c]]
        for e in edges:
            inside[source[e]] += 1
            _mark(blocks, source[e])
        _split(blocks)
        for e in edges:
            s = source[e]
            if inside[s] > 0:
                if inside[s] == size[bundle[e]]:
                    home[s] = bundle[e]
                else:
                    size[bundle[e]] -= inside[s]
                    size[num_bundles] = inside[s]
                    home[s] = num_bundles
                    num_bundles += 1
                    _mark(blocks, s)
                inside[s] = 0
            bundle[e] = home[s]
        _split(blocks)
        c += 1
        while b < blocks.counts[0]:
            for s in blocks.order[blocks.start[b] : blocks.stop[b]]:
                for e in range(into[s], into[s + 1]):
                    _mark(cords, e)
            _split(cords)
            b += 1

    number = np.full(blocks.counts[0], -1)
    classes = np.empty(num_states, np.int64)
    found = 0
    for s in range(num_states):
        if number[blocks.block[s]] < 0:
            number[blocks.block[s]] = found
            found += 1
        classes[s] = number[blocks.block[s]]
    return classes
