"""Steps of one environment or several, one by one, until enough were taken."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, NamedTuple

from bisimetric.datasets.actions import Actions, Chooser
from bisimetric.datasets.fleets import Fleet, Move
from bisimetric.datasets.observations import Observer, Seen


class Step(NamedTuple):
    """One step of the environment at one place."""

    place: int
    before: Seen
    action: Any
    reward: float
    after: Seen
    terminated: bool
    truncated: bool


@dataclasses.dataclass(frozen=True)
class Limits:
    """How many steps, and how many episodes, are enough; None means any number."""

    steps: int | None
    episodes: int | None

    def share(self, place: int, places: int) -> Limits:
        """What falls to one of several places.

        >>> [Limits(10, None).share(place, 4).steps for place in range(4)]
        [3, 3, 2, 2]
        """

        def part(whole: int | None) -> int | None:
            return whole if whole is None else whole // places + (place < whole % places)

        return Limits(part(self.steps), part(self.episodes))

    def reached(self, steps: int, episodes: int) -> bool:
        return steps == self.steps or episodes == self.episodes


class Lane:
    """Where one environment stands in its share of the walk."""

    def __init__(self, share: Limits) -> None:
        self._share = share
        self._taken = self._ended = self._length = 0
        self.open = not share.reached(0, 0)

    def count(self, move: Move, longest: int | None) -> bool:
        """Counts a step; whether its episode is over."""
        self._length += 1
        over = move.terminated or move.truncated or self._length == longest
        self._taken += 1
        self._ended += over
        self._length *= not over
        self.open = self.open and not self._share.reached(self._taken, self._ended)
        return over


def walk(
    fleet: Fleet, observer: Observer, actions: Actions, chooser: Chooser, limits: Limits
) -> Iterator[Step]:
    """The steps of all environments, in the order of time.

    Each environment takes its share of the limits, so that long episodes count as much as short
    ones. Its last step is truncated, unless the episode ended there.
    """
    fleet.start()
    count = len(fleet.now)
    lanes = [Lane(limits.share(place, count)) for place in range(count)]

    def see(place: int, observation: Any) -> Seen:
        return observer.see(fleet.environments[place], observation)

    seen = [see(place, fleet.now[place]) for place in range(count)]
    while any(lane.open for lane in lanes):
        acting = [lane.open and not fleet.resting[place] for place, lane in enumerate(lanes)]
        chosen = chooser.choose(seen, acting, fleet.ask)
        begun = [False] * count
        over = [False] * count
        for place, move in enumerate(fleet.step(chosen)):
            lane = lanes[place]
            if move is None:
                begun[place] = True
                continue
            over[place] = lane.count(move, fleet.longest)
            if acting[place]:
                before, seen[place] = seen[place], see(place, move.observation)
                yield Step(
                    place,
                    before,
                    actions.kept(chosen[place]),
                    move.reward,
                    seen[place],
                    move.terminated,
                    (over[place] or not lane.open) and not move.terminated,
                )
        if not any(lane.open for lane in lanes):
            return
        fleet.restart(over)
        for place, lane in enumerate(lanes):
            fresh = begun[place] or (over[place] and not fleet.resting[place])
            if fresh and lane.open:
                seen[place] = see(place, fleet.now[place])
