"""Embedding: states as points whose distances follow d, and features of states."""

from __future__ import annotations

from bisimetric.uses.embedding import features
from bisimetric.uses.embedding.scaling import Embedding, embed

__all__ = ["Embedding", "embed", "features"]
