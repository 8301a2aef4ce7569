"""Transfer: the best policy of one MDP carried to another."""

from __future__ import annotations

from bisimetric.uses.transfer.carrying import transfer
from bisimetric.uses.transfer.pairing import disjoint_union
from bisimetric.uses.transfer.record import Transfer

__all__ = ["Transfer", "disjoint_union", "transfer"]
