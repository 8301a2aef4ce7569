"""d~ of an MDP by POT, timed: `python peers_pot.py mdp.npz TOL`.

Run it with the interpreter of an environment that holds `POT` and NumPy. The file holds
`successors` and `probabilities` (S, A, k), `R` (S, A) and `discount`. One call of `ot.emd2` on the
supports for every pair t < s and action, repeated until the residual proves a true error of TOL.
Prints CPU seconds, sweeps and microseconds per call as JSON, and writes the distance matrix beside
the file.
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
        successors, P, R = stored["successors"], stored["probabilities"], stored["R"]
        discount = float(stored["discount"])
    states, actions = R.shape
    cells = [
        (s, t, a, np.ix_(successors[s, a], successors[t, a]))
        for s in range(states)
        for t in range(s)
        for a in range(actions)
    ]
    d, sweeps, start = np.zeros((states, states)), 0, time.process_time()
    while True:
        backup = np.zeros_like(d)
        for s, t, a, cell in cells:
            transport = ot.emd2(P[s, a], P[t, a], np.ascontiguousarray(d[cell]))
            value = abs(R[s, a] - R[t, a]) + discount * transport
            if value > backup[s, t]:
                backup[s, t] = backup[t, s] = value
        sweeps += 1
        residual = np.abs(backup - d).max()
        d = backup
        if discount * residual / (1 - discount) <= tol:
            break
    seconds = time.process_time() - start
    np.save(path.with_suffix(".npy"), d)
    call = seconds / (sweeps * len(cells)) * 1e6
    print(json.dumps({"seconds": seconds, "sweeps": sweeps, "call": call}))


if __name__ == "__main__":
    main()
