"""The commands, one module per group: parse, call, print. Docstrings are the text of `--help`.

NumPy, SciPy, Numba and Matplotlib are imported only inside the functions that compute, so that
`--help` and parse errors are answered at once.
"""
