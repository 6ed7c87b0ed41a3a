"""A room for each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from .room import Room, open_room


@pytest.fixture
def room(tmp_path: Path) -> Iterator[Room]:
    """One node with default settings."""
    with open_room(tmp_path) as room:
        yield room
