"""Transfer of an optimal policy from one MDP to another."""

from __future__ import annotations

from bisimetric.uses.policy_transfer._disjoint_union import disjoint_union
from bisimetric.uses.policy_transfer._transfer import Transfer, transfer

__all__ = ["Transfer", "disjoint_union", "transfer"]
