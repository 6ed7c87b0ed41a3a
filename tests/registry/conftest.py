"""Fixtures of tests with a registry."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import RunningBroker
from tests.registry.stand_in import StandIn
from tests.registry_process import RegistryProcess


@pytest.fixture
def stand_in() -> Iterator[StandIn]:
    """A small registry in a thread, with injected faults."""
    with StandIn() as running:
        yield running


@pytest.fixture
def registry_url(broker: RunningBroker, tmp_path: Path) -> Iterator[str]:
    """Ottla's registry as a process, on the shared broker: use subjects of your own."""
    with RegistryProcess(tmp_path / "registry", broker.bootstrap) as running:
        yield running.url
