"""What an agent is: the contract stands with the games, which are what it plays."""

from bisimetric.games.protocol import Agent, Seen

__all__ = ["Agent", "Seen"]
