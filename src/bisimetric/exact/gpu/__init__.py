"""Exact distances of deterministic MDPs on one GPU, with the same proof as on the CPU."""
