"""Compression: a replay buffer thinned to steps that stand for all, and what these teach."""

from __future__ import annotations

from bisimetric.uses.compression import models
from bisimetric.uses.compression.thinning import Compressed, compress

__all__ = ["Compressed", "compress", "models"]
