"""A schema registry, and a broker that asks it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import TEST_PROPERTIES
from tests.ottla_process import ForkedOttla, OttlaProcess

from .registry import HttpRegistry


@pytest.fixture
def registry() -> Iterator[HttpRegistry]:
    with HttpRegistry() as running:
        yield running


@pytest.fixture
def validating(tmp_path: Path, registry: HttpRegistry) -> Iterator[OttlaProcess]:
    """A broker with `confluent.schema.registry.url`."""
    settings = {
        "confluent.schema.registry.url": registry.url,
        "confluent.basic.auth.credentials.source": "USER_INFO",
        "confluent.basic.auth.user.info": "broker:secret",
        "ottla.schema.validation.timeout.ms": 2_000,
    }
    process = ForkedOttla(tmp_path / "broker", TEST_PROPERTIES | settings)
    process.start()
    try:
        yield process
        assert process.stop() == 0, process.log_tail()
        process.assert_no_traceback()
    finally:
        process.kill()
