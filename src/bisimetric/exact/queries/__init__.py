"""On-the-fly search and solution of the pairs reachable from a query."""
