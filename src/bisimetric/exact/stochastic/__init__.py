"""Solvers for stochastic MDPs: policy iteration over actions and couplings, and Monte Carlo."""
