"""Exact distances on one GPU, with the same proof as on the CPU."""
