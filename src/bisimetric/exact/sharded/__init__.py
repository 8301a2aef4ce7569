"""Exact distances whose matrix rows are split over devices and processes.

The same program runs on a laptop and on a cluster: alone it is one process; under `bisimetric
launch`, srun, mpirun or a Kubernetes job each process holds its part of the rows.
"""

from bisimetric.exact.sharded.api import bisimulation, on_policy
from bisimetric.exact.sharded.cluster import join
from bisimetric.exact.sharded.cost import estimate_cost

__all__ = ["bisimulation", "estimate_cost", "join", "on_policy"]
