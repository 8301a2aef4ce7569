"""Compression: a replay buffer thinned to steps that stand for all, and what these teach."""

from __future__ import annotations

from bisimetric.uses.compression import models
from bisimetric.uses.compression.thinning import Compression, compress

__all__ = ["Compression", "compress", "models"]
