"""`bisimetric atari`: agents, metrics and pictures of Atari games; one module a command."""
