"""Fixtures for all tests of the broker."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from .harness import BrokerHarness, open_harness


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[BrokerHarness]:
    """One node with default settings."""
    with open_harness(tmp_path) as harness:
        yield harness
