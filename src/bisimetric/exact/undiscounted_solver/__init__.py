"""Solver for undiscounted distances of labelled Markov chains, with two-sided certificates."""
