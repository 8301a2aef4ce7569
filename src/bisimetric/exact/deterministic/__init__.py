"""Solvers and kernels for deterministic MDPs: every pair and action lead to one pair."""
