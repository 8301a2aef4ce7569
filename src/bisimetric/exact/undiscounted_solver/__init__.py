"""Solvers for undiscounted distances of labelled chains and MDPs, with two-sided certificates."""
