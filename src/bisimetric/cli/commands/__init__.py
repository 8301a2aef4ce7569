"""The commands, a file a group: parse, call, save. Each docstring is also what `--help` says.

NumPy, SciPy, Numba and Matplotlib are imported only inside the functions that compute, so that
`--help` and mistakes in the command line are answered at once.
"""
