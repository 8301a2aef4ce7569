"""Solvers and kernels for deterministic MDPs: every pair and action has one successor pair."""
