"""Marks on the map: goals, absorbing states, walls, headings and captions."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from bisimetric import MDP, exact, explorer, worlds
from bisimetric.errors import ExpectedRewardWarning

Open = Callable[..., Page]


def load_lake(*, slippery: bool) -> MDP:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExpectedRewardWarning)
        return worlds.load("FrozenLake-v1", is_slippery=slippery, discount=0.9)


@pytest.mark.parametrize("slippery", [False, True])
def test_a_lake_shows_its_goal_and_its_holes(show: Open, slippery: bool) -> None:
    page = show(explorer.render_page(exact.bisimulation(load_lake(slippery=slippery))))
    marks = page.locator("#view-distances .marks")
    assert marks.locator(".goal").count() == 1
    holes = marks.locator(".hole")
    assert [hole.get_attribute("data-state") for hole in holes.all()] == ["5", "7", "11", "12"]
    expect(page.locator("#view-distances .legend")).to_contain_text("absorbing")
    page.locator("#tab-classes").click()
    expect(page.locator("#view-classes .legend")).to_contain_text("absorbing")


def test_headings_of_minigrid_are_drawn(show: Open) -> None:
    mdp = worlds.load("MiniGrid-Empty-5x5-v0", discount=0.9)
    page = show(explorer.render_page(exact.bisimulation(mdp)))
    names = mdp.names or ()
    for heading in ("east", "south", "west", "north"):
        drawn = page.locator(f"#view-distances .marks .heading.{heading}")
        assert drawn.count() == sum(name.endswith(heading) for name in names) > 0
    # One outline around the cells of a place.
    places = {name.split()[0] for name in names if name != "end"}
    assert page.locator("#view-distances .marks .place").count() == len(places)
    expect(page.locator("#view-distances .legend")).to_contain_text("heading")


def test_panels_of_taxi_have_captions_walls_and_stands(show: Open) -> None:
    page = show(explorer.render_page(exact.bisimulation(worlds.load("Taxi-v4", discount=0.9))))
    captions = page.locator("#view-distances .marks .part").all_text_contents()
    assert len(captions) == 20
    assert captions[:2] == ["from R to R", "from R to G"]
    assert page.locator("#view-distances .marks .wall").count() == 120
    stands = page.locator("#view-distances .marks .stand").all_text_contents()
    assert set(stands) == {"R", "G", "Y", "B"}
