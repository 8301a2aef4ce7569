"""The source of a sampled run: an MDP, a data set, or a stream of data."""

from __future__ import annotations

import dataclasses
import hashlib
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bisimetric.errors import InputError
from bisimetric.exact._gap_solver import describe_gap, evaluate_gap
from bisimetric.exact.gaps import GapFunction
from bisimetric.mdp import MDP, induce_chain, validate_discount
from bisimetric.mdp._validation import resolve_policy
from bisimetric.sampled.ingest import (
    DistinctTransitions,
    ingest_transitions,
    mdp_from_data,
    require_table_memory,
    table_from_data,
)
from bisimetric.sampled.samplers import Sampler, Trajectories
from bisimetric.sampled.transition_table import TransitionTable, replace_rewards, table_from_mdp
from bisimetric.transitions import DEFAULT_DISCOUNT, Transitions


@dataclasses.dataclass(frozen=True, eq=False)
class SampledSource:
    """Known transitions and their origin.

    Attributes:
        kind: "bisimulation" or "on_policy".
        table: the known transitions.
        discount: the discount factor.
        policy: (S,) actions for an on-policy distance; None for data of one policy.
        mdp: the MDP, or None for data.
        data: the data, or None for an MDP.
        order: (n,), the row of the table that each step of the data is, or None.
        streaming: whether more data may arrive.
        gap: what the metadata say of a gap in place of the differences of rewards, or None.
    """

    kind: str
    table: TransitionTable
    discount: float
    policy: NDArray[Any] | None
    mdp: MDP | None = None
    data: DistinctTransitions | None = None
    order: NDArray[np.int64] | None = None
    streaming: bool = False
    gap: str | None = None

    @property
    def fingerprint(self) -> str:
        """A hash of the transitions and their order."""
        order = () if self.order is None or self.streaming else self.order
        return hashlib.sha256(
            self.table.fingerprint.encode() + np.asarray(order).tobytes()
        ).hexdigest()

    @property
    def model_policy(self) -> NDArray[Any] | None:
        """The policy on the MDP of `to_mdp`, which is a chain for on-policy data."""
        if self.mdp is None and self.kind == "on_policy":
            return np.zeros(self.table.num_states, np.int64)
        return self.policy

    def to_mdp(self) -> MDP:
        """Return the MDP, or the known part of it for data."""
        if self.mdp is not None:
            return self.mdp
        if self.data is None:
            raise InputError(f"sampled.{self.kind}: the source has no data.")
        return mdp_from_data(self.data, self.table, self.discount)

    def extend(self, transitions: Transitions) -> SampledSource:
        """Return the source with more data."""
        if self.data is None:
            raise InputError(
                f"sampled.{self.kind}: transitions cannot be added to an MDP; start from data."
            )
        if self.gap is not None:
            raise InputError(
                f"sampled.{self.kind}: transitions cannot be added to a run with a gap, which is "
                "that of the known states; leave gap out."
            )
        data, member = ingest_transitions(
            self.kind, transitions, self.policy, previous=self.data, streaming=True
        )
        return source_from_data(self.kind, data, self.policy, self.discount, member, streaming=True)


def open_source(
    kind: str,
    source: MDP | Transitions,
    policy: ArrayLike | None,
    discount: float | None,
    sampler: Sampler,
    *,
    streaming: bool = False,
) -> SampledSource:
    """Validate an MDP, a data set or the first chunk of a stream, and build its source."""
    weights = getattr(sampler, "weights", None)
    if isinstance(source, Transitions):
        if isinstance(sampler, Trajectories) and sampler.policy is not None:
            raise InputError(
                f"sampled.{kind}: data already follow a policy; omit the policy of Trajectories."
            )
        discount = DEFAULT_DISCOUNT if discount is None else validate_discount(discount)
        actions = None if policy is None else np.asarray(policy)
        data, member = ingest_transitions(kind, source, actions, weights, streaming=streaming)
        if not len(member) and not streaming:
            raise InputError(f"sampled.{kind}: no step of the data takes the action of policy.")
        return source_from_data(kind, data, actions, discount, member, streaming=streaming)
    if not isinstance(source, MDP):
        raise InputError(
            f"sampled.{kind}: source is {type(source).__name__} and must be an MDP, "
            "Transitions, or an iterable of Transitions."
        )
    mdp = source if discount is None else source.replace(discount=discount)
    require_table_memory(kind, mdp.num_states, mdp.num_actions)
    if kind == "bisimulation":
        return SampledSource(kind, table_from_mdp(mdp, kind, weights), mdp.discount, None, mdp)
    actions = resolve_policy("on_policy", mdp, policy, caller="sampled")
    induced = induce_chain(mdp, actions)
    chain = induced.mdp
    if isinstance(sampler, Trajectories) and sampler.policy is not None:
        raise InputError(
            "sampled.on_policy: the random walk follows policy; omit the policy of Trajectories."
        )
    if mdp.is_deterministic and not chain.is_deterministic:
        s, _ = chain.first_stochastic_action()
        raise InputError(
            f"takes several actions in state {mdp.state_name(s)} and must be deterministic",
            caller="sampled.on_policy",
            argument="policy",
            remedy="use exact.on_policy",
        )
    table = dataclasses.replace(
        table_from_mdp(chain, kind, weights), reward_error=induced.reward_error
    )
    return SampledSource(kind, table, mdp.discount, actions, mdp)


def apply_gap(source: SampledSource, gap: ArrayLike | GapFunction) -> SampledSource:
    """Return the source with a gap in place of the differences of rewards.

    The data of one policy have no actions to compare.
    """
    mdp, kind = source.to_mdp(), source.kind
    policy = None
    if kind == "on_policy":
        policy = source.policy
        if source.mdp is None and (policy is None or len(policy) != mdp.num_states):
            policy = np.ones((mdp.num_states, 1))
    table = evaluate_gap(f"sampled.{kind}", kind, mdp, gap, policy, check_triangles=False)
    return dataclasses.replace(
        source,
        table=replace_rewards(source.table, table[:, 0], mdp, kind),
        gap=describe_gap(gap),
    )


def source_from_data(
    kind: str,
    data: DistinctTransitions,
    policy: NDArray[Any] | None,
    discount: float,
    member: NDArray[np.int64],
    *,
    streaming: bool,
) -> SampledSource:
    """Build the source of data; `member` (n,) is the distinct transition of each step."""
    table = table_from_data(kind, data, streaming=streaming)
    if not len(member):
        member = np.arange(len(data.state))
    order = table.row_index[data.group[member], data.state[member]].astype(np.int64)
    return SampledSource(kind, table, discount, policy, None, data, order, streaming)
