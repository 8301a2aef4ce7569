"""Set up test runs as in the tests of bisimetric: threads, caches, and the command line."""

from __future__ import annotations

import pytest

from tests.conftest import run

__all__ = ["run"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        # These doctests train networks.
        if isinstance(item, pytest.DoctestItem) and item.name.startswith(
            "bisimetric_atari.agents.rainbow"
        ):
            item.add_marker(pytest.mark.slow)
