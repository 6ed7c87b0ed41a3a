"""Fixtures of the tests of HTTP servers."""

from __future__ import annotations

import pytest

from tests.peers.secured import Certificates


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """An authority and certificates that it signed."""
    return Certificates(tmp_path_factory.mktemp("certificates"))
