"""Distances of chosen pairs, from the pairs that they reach."""
