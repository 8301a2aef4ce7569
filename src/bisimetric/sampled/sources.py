"""What a run is fed with: a model, a data set, or data that keeps coming."""

from __future__ import annotations

import dataclasses
import hashlib
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bisimetric.errors import InputError
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
from bisimetric.sampled.transition_table import TransitionTable, table_from_mdp
from bisimetric.transitions import DEFAULT_DISCOUNT, Transitions


@dataclasses.dataclass(frozen=True, eq=False)
class SampledSource:
    """Known transitions, and where they come from.

    Attributes:
        policy: of an on-policy distance, (S,) actions; None for data of one policy.
        given: the MDP that was given, or None.
        experience: the data that was given, or None.
        order: (n,), the known transition that each step of the data is, or None.
        streaming: whether more data may come.
    """

    kind: str
    table: TransitionTable
    discount: float
    policy: NDArray[Any] | None
    mdp: MDP | None = None
    data: DistinctTransitions | None = None
    order: NDArray[np.int64] | None = None
    streaming: bool = False

    @property
    def fingerprint(self) -> str:
        """Tells it from other sources."""
        order = () if self.order is None or self.streaming else self.order
        return hashlib.sha256(
            self.table.fingerprint.encode() + np.asarray(order).tobytes()
        ).hexdigest()

    @property
    def model_policy(self) -> NDArray[Any] | None:
        """The policy of the distance, in terms of `model`: a chain, where it comes from data."""
        if self.mdp is None and self.kind == "on_policy":
            return np.zeros(self.table.num_states, np.int64)
        return self.policy

    def to_mdp(self) -> MDP:
        """The MDP whose states the table is of; from data, as far as it is known."""
        if self.mdp is not None:
            return self.mdp
        if self.data is None:
            raise InputError(f"sampled.{self.kind}: nothing was seen yet.")
        return mdp_from_data(self.data, self.table, self.discount)

    def extend(self, transitions: Transitions) -> SampledSource:
        """The source with more data."""
        if self.data is None:
            raise InputError(f"sampled.{self.kind}: a model is known already; give a stream alone.")
        experience, member = ingest_transitions(
            self.kind, transitions, self.policy, previous=self.data, streaming=True
        )
        return source_from_data(
            self.kind, experience, self.policy, self.discount, member, streaming=True
        )


def open_source(
    kind: str,
    source: MDP | Transitions,
    policy: ArrayLike | None,
    discount: float | None,
    sampler: Sampler,
    *,
    streaming: bool = False,
) -> SampledSource:
    """A model, a data set, or the first part of a stream, checked and as the kernels read it."""
    weights = getattr(sampler, "weights", None)
    if isinstance(source, Transitions):
        if isinstance(sampler, Trajectories) and sampler.policy is not None:
            raise InputError(
                f"sampled.{kind}: data follows the policy that made it; leave out that of "
                "Trajectories."
            )
        given = DEFAULT_DISCOUNT if discount is None else validate_discount(discount)
        chosen = None if policy is None else np.asarray(policy)
        experience, member = ingest_transitions(kind, source, chosen, weights, streaming=streaming)
        if not len(member) and not streaming:
            raise InputError(f"sampled.{kind}: no step of the data takes the action of the policy.")
        return source_from_data(kind, experience, chosen, given, member, streaming=streaming)
    if not isinstance(source, MDP):
        raise InputError(
            f"sampled.{kind}: the source is {type(source).__name__} and must be an MDP, "
            "Transitions, or an iterable of Transitions."
        )
    mdp = source if discount is None else source.replace(discount=discount)
    require_table_memory(kind, mdp.num_states, mdp.num_actions)
    if kind == "bisimulation":
        return SampledSource(kind, table_from_mdp(mdp, kind, weights), mdp.discount, None, mdp)
    followed = resolve_policy("on_policy", mdp, policy, caller="sampled")
    induced = induce_chain(mdp, followed)
    chain = induced.mdp
    if isinstance(sampler, Trajectories) and sampler.policy is not None:
        raise InputError(
            "sampled.on_policy: the walk follows the policy itself; leave out that of Trajectories."
        )
    if mdp.is_deterministic and not chain.is_deterministic:
        s, _ = chain.first_stochastic_action()
        raise InputError(
            f"sampled.on_policy: the policy takes several actions in state {mdp.state_name(s)}, and "
            "sampled pairs need one that takes one; use exact.on_policy."
        )
    known = dataclasses.replace(
        table_from_mdp(chain, kind, weights), reward_error=induced.reward_error
    )
    return SampledSource(kind, known, mdp.discount, followed, mdp)


def source_from_data(
    kind: str,
    data: DistinctTransitions,
    policy: NDArray[Any] | None,
    discount: float,
    member: NDArray[np.int64],
    *,
    streaming: bool,
) -> SampledSource:
    """What is known from data; `member` (n,) tells which of it each step was."""
    known = table_from_data(kind, data, streaming=streaming)
    if not len(member):
        member = np.arange(len(data.state))
    order = known.row_index[data.group[member], data.state[member]].astype(np.int64)
    return SampledSource(kind, known, discount, policy, None, data, order, streaming)
