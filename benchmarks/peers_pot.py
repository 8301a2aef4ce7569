"""d~ of a chain by POT, timed: `python peers_pot.py chain.npz TOL`.

Run it with the interpreter of an environment that holds `POT` and NumPy. The file holds
`successors` and `shares` (S, k), `R` (S,) and `discount`. One call of `ot.emd2` on the supports for
every pair t < s, repeated until the residual proves a true error of TOL. Prints seconds, sweeps
and microseconds per call as JSON, and writes the distance matrix to the folder of the file.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np
import ot  # type: ignore[import-not-found]


def main() -> None:
    path, tol = Path(sys.argv[1]), float(sys.argv[2])
    with np.load(path) as stored:
        successors, shares, R = stored["successors"], stored["shares"], stored["R"]
        discount = float(stored["discount"])
    states = len(R)
    cells = [[np.ix_(successors[s], successors[t]) for t in range(s)] for s in range(states)]
    d, sweeps, start = np.zeros((states, states)), 0, time.perf_counter()
    while True:
        backup = np.zeros_like(d)
        for s in range(states):
            for t in range(s):
                cost = np.ascontiguousarray(d[cells[s][t]])
                cost_of_transport = ot.emd2(shares[s], shares[t], cost)
                backup[s, t] = backup[t, s] = abs(R[s] - R[t]) + discount * cost_of_transport
        sweeps += 1
        residual = np.abs(backup - d).max()
        d = backup
        if discount * residual / (1 - discount) <= tol:
            break
    seconds = time.perf_counter() - start
    np.save(path.with_suffix(".pot.npy"), d)
    calls = sweeps * states * (states - 1) / 2
    print(json.dumps({"seconds": seconds, "sweeps": sweeps, "call": seconds / calls * 1e6}))


if __name__ == "__main__":
    main()
