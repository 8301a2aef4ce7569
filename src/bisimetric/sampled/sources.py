"""What a run is fed with: a model, a data set, or data that keeps coming."""

from __future__ import annotations

import dataclasses
import hashlib
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bisimetric.errors import InputError
from bisimetric.exact.table import given_policy
from bisimetric.mdp import MDP, checked_discount, induce_chain
from bisimetric.sampled.experience import Experience, known_of, model_of, require_tables
from bisimetric.sampled.gathering import gathered
from bisimetric.sampled.known import Known, of_model
from bisimetric.sampled.samplers import Sampler, Trajectories
from bisimetric.transitions import DISCOUNT, Transitions


@dataclasses.dataclass(frozen=True, eq=False)
class Source:
    """Known transitions, and where they come from.

    Attributes:
        policy: of an on-policy distance, (S,) actions; None for data of one policy.
        given: the MDP that was given, or None.
        experience: the data that was given, or None.
        order: (n,), the known transition that each step of the data is, or None.
        streaming: whether more data may come.
    """

    verb: str
    known: Known
    discount: float
    policy: NDArray[Any] | None
    given: MDP | None = None
    experience: Experience | None = None
    order: NDArray[np.int64] | None = None
    streaming: bool = False

    @property
    def fingerprint(self) -> str:
        """Tells it from other sources."""
        order = () if self.order is None or self.streaming else self.order
        return hashlib.sha256(
            self.known.fingerprint.encode() + np.asarray(order).tobytes()
        ).hexdigest()

    @property
    def followed(self) -> NDArray[Any] | None:
        """The policy of the distance, in terms of `model`: a chain, where it comes from data."""
        if self.given is None and self.verb == "on_policy":
            return np.zeros(self.known.states, np.int64)
        return self.policy

    def model(self) -> MDP:
        """The MDP whose states the table is of; from data, as far as it is known."""
        if self.given is not None:
            return self.given
        if self.experience is None:
            raise InputError(f"sampled.{self.verb}: nothing was seen yet.")
        return model_of(self.experience, self.known, self.discount)

    def after(self, transitions: Transitions) -> Source:
        """The source with more data."""
        if self.experience is None:
            raise InputError(f"sampled.{self.verb}: a model is known already; give a stream alone.")
        experience, member = gathered(
            self.verb, transitions, self.policy, before=self.experience, streaming=True
        )
        return of_experience(
            self.verb, experience, self.policy, self.discount, member, streaming=True
        )


def opened(
    verb: str,
    source: MDP | Transitions,
    policy: ArrayLike | None,
    discount: float | None,
    sampler: Sampler,
    *,
    streaming: bool = False,
) -> Source:
    """A model, a data set, or the first part of a stream, checked and as the kernels read it."""
    weights = getattr(sampler, "weights", None)
    if isinstance(source, Transitions):
        if isinstance(sampler, Trajectories) and sampler.policy is not None:
            raise InputError(
                f"sampled.{verb}: data follows the policy that made it; leave out that of "
                "Trajectories."
            )
        given = DISCOUNT if discount is None else checked_discount(discount)
        chosen = None if policy is None else np.asarray(policy)
        experience, member = gathered(verb, source, chosen, weights, streaming=streaming)
        if not len(member) and not streaming:
            raise InputError(f"sampled.{verb}: no step of the data takes the action of the policy.")
        return of_experience(verb, experience, chosen, given, member, streaming=streaming)
    if not isinstance(source, MDP):
        raise InputError(
            f"sampled.{verb}: the source is {type(source).__name__} and must be an MDP, "
            "Transitions, or an iterable of Transitions."
        )
    mdp = source if discount is None else source.replace(discount=discount)
    require_tables(verb, mdp.num_states, mdp.num_actions)
    if verb == "bisimulation":
        return Source(verb, of_model(mdp, verb, weights), mdp.discount, None, mdp)
    followed = given_policy("on_policy", mdp, policy, how="sampled")
    induced = induce_chain(mdp, followed)
    chain = induced.mdp
    if isinstance(sampler, Trajectories) and sampler.policy is not None:
        raise InputError(
            "sampled.on_policy: the walk follows the policy itself; leave out that of Trajectories."
        )
    if mdp.is_deterministic and not chain.is_deterministic:
        s, _ = chain.first_branch()
        raise InputError(
            f"sampled.on_policy: the policy takes several actions in state {mdp.name(s)}, and "
            "sampled pairs need one that takes one; use exact.on_policy."
        )
    known = dataclasses.replace(of_model(chain, verb, weights), reward_error=induced.reward_error)
    return Source(verb, known, mdp.discount, followed, mdp)


def of_experience(
    verb: str,
    experience: Experience,
    policy: NDArray[Any] | None,
    discount: float,
    member: NDArray[np.int64],
    *,
    streaming: bool,
) -> Source:
    """What is known from data; `member` (n,) tells which of it each step was."""
    known = known_of(verb, experience, streaming=streaming)
    if not len(member):
        member = np.arange(len(experience.state))
    order = known.place[experience.group[member], experience.state[member]].astype(np.int64)
    return Source(verb, known, discount, policy, None, experience, order, streaming)
